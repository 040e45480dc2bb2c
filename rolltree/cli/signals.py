"""A program that is told to end, by SIGTERM (a scheduler, a container) or SIGHUP (a terminal that is gone), ends as by
Ctrl-C: what is being written is finished or taken back, processes it started end, and the log says why."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def told_to_end() -> Generator[list[signal.Signals]]:
    """Which signals came, in their order. A second one ends the program at once, as the system would.

    What somebody chose before stays, such as nohup's choice to ignore SIGHUP. A program that is not ready to hear
    Ctrl-C (`rolltree.__main__`) hears it for as long as this lasts, and ends at once by it before and afterwards. Ranks
    beside the first are torchrun's to end: they wait inside a library, where no handler runs.
    """
    came: list[signal.Signals] = []

    def hear(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number))
        if len(came) > 1:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            raise KeyboardInterrupt  # shells let programs in the background ignore Ctrl-C
        signal.raise_signal(signal.SIGINT)

    apart = threading.current_thread() is not threading.main_thread() or os.environ.get("RANK", "0") != "0"
    mine = [] if apart else [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
    for each in mine:
        signal.signal(each, hear)
    deaf = not apart and signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if deaf:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield came
    finally:
        if deaf:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        for each in mine:
            if signal.getsignal(each) is hear:
                signal.signal(each, signal.SIG_DFL)
