"""A task with a long tail, and a run on it that is killed: some prompts ask for much longer answers than others."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import rolltree
from rolltree.engine.local import LocalEngine
from rolltree.training.loop import RunEvent
from tests.train.toy import KNOBS, Early, tiny_policy

LONG: dict[str, Any] = {**KNOBS, "eval_every": 0, "forests_every": 0, "checkpoint_every": 2, "steps": 7}


@dataclass(frozen=True)
class Tail(Early):
    """As its parent, but answers end where they please: a random policy writes a geometric number of tokens."""

    max_tokens: int = 40


def narrow() -> LocalEngine:
    """An engine with fewer slots than there are rollouts, so that some wait while others are written."""
    return LocalEngine(tiny_policy(), version=-1, max_batch=12)


def killed(out: str, schedule: str) -> None:
    """A run that ends by kill -9 while it trains step 6."""

    def listen(live: RunEvent) -> None:
        if live.kind == "grown" and live.step == 6:
            os.kill(os.getpid(), signal.SIGKILL)

    rolltree.train(
        "grpo", tiny_policy(), Tail(), out=Path(out), listen=listen, engine=narrow(), scheduler=schedule, **LONG
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    killed(sys.argv[1], sys.argv[2])
