"""Training and recording in one process: any number of trainings at once, or one recording, which bears none beside it.

While a decoding step is recorded as a CUDA graph, nobody in the process may wait for the whole card or get back memory
that torch keeps; a policy in training may do both at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager


class CardTurns:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._trainings = 0
        self._recording = False

    @contextmanager
    def training(self) -> Generator[None]:
        """A policy is trained; waits for a recording to end, which takes milliseconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._recording)
            self._trainings += 1
        try:
            yield
        finally:
            with self._changed:
                self._trainings -= 1

    @contextmanager
    def recording(self) -> Generator[bool]:
        """Whether a step may be recorded now; never waits."""
        with self._changed:
            free = not self._recording and not self._trainings
            self._recording |= free
        try:
            yield free
        finally:
            if free:
                with self._changed:
                    self._recording = False
                    self._changed.notify_all()


TURNS = CardTurns()
"""Of this process."""
