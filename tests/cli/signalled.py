"""Runs of the command line that are told to end at exact moments, each in a child of one process that has imported all.

Prints, as JSON, the exit code, the last words and the run's log of each, and what resuming it says.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rolltree.training.checkpoint as checkpoint
import rolltree.training.loop as loop
from rolltree.cli import main

PRELOAD = ("rolltree.cli.train", "rolltree.engine.local", "rolltree.tree.store.parquet", "studies.lab.nano", "pandas",
           "transformers.models.llama.modeling_llama", "safetensors.torch")  # fmt: skip
OPTIONS = "--task arithmetic --level 1 --steps 2 --prompts 2 --group 2 --eval-items 2 --eval-every 1 --max-tokens 6"
OPTIONS += " --checkpoint-every 1 --threads 1 --doctor 0"
RUN = ["train", "grpo", *OPTIONS.split(), "--out"]


def while_evaluating(told: Callable[[], None]) -> None:
    """At the second evaluation, after step 1."""
    evaluate, times = loop.evaluate, []

    async def wrapped(*args: Any, **knobs: Any) -> Any:
        times.append(1)
        if len(times) == 2:
            told()
        return await evaluate(*args, **knobs)

    loop.evaluate = wrapped


def while_saving(told: Callable[[], None]) -> None:
    """In the middle of the first checkpoint."""
    save = checkpoint.torch.save

    def wrapped(*args: Any, **knobs: Any) -> None:
        told()
        save(*args, **knobs)

    checkpoint.torch.save = wrapped


def in_child(work: Callable[[], int], said: Path) -> int:
    """Its exit code, or minus the signal that ended it."""
    if not (child := os.fork()):
        with said.open("w") as sink:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
        try:
            os._exit(work())
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def case(moment: Callable[[Callable[[], None]], None], signals: list[int], place: Path) -> dict[str, Any]:
    """One run that is told to end, and resumed."""

    def run() -> int:
        if signals[0] == signal.SIGTERM:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
        moment(lambda: [os.kill(os.getpid(), each) for each in signals] and None)
        return main([*RUN, str(place / "run")])

    code = in_child(run, place / "said")
    log = (place / "run" / "log.txt").read_text()
    left = sorted(p.name for p in (place / "run").rglob(".*"))
    again = in_child(lambda: main([*RUN, str(place / "run"), "--resume"]), place / "again")
    return {"code": code, "said": (place / "said").read_text(), "log": log, "again": again, "left": left}


if __name__ == "__main__":
    cases = {
        "evaluating SIGINT": (while_evaluating, [signal.SIGINT]),
        "evaluating SIGTERM": (while_evaluating, [signal.SIGTERM]),
        "saving SIGTERM": (while_saving, [signal.SIGTERM]),
        "saving SIGHUP": (while_saving, [signal.SIGHUP]),
        "twice": (while_saving, [signal.SIGHUP, signal.SIGHUP]),
    }
    for module in PRELOAD:
        importlib.import_module(module)
    out = dict[str, Any]()
    for name, (moment, signals) in cases.items():
        place = Path(sys.argv[1]) / name.replace(" ", "-")
        place.mkdir()
        out[name] = case(moment, signals, place)
    print(json.dumps(out))
