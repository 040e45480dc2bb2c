"""Disks that fill at any moment of a run, at any size of a file.

Promised: the run ends in a sentence with the place, the last whole checkpoint stays, and with room again the run goes
on to the weights that it would have reached.
"""

from __future__ import annotations

import functools
import random
import resource
import tempfile
from pathlib import Path
from typing import Any

import torch

from rolltree.errors import RolltreeError
from rolltree.training.checkpoint import check_seal, checkpoints
from tests.attack.frame import Attack, BrokenPromiseError
from tests.attack.models import train_tiny

KNOBS: dict[str, Any] = {"steps": 3, "forests_every": 1, "eval_every": 1}
MOMENTS = ("growing", "grown", "trained", "evaluated", "checkpoint")
SIZES = (0, 64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17)
"""Bytes around which the files of such a run lie."""


@functools.cache
def _goal() -> dict[str, Any]:
    torch.set_num_threads(1)
    return train_tiny(Path(tempfile.mkdtemp(prefix="attack-full-")) / "run", **KNOBS)


def filled(rng: random.Random, place: Path) -> str:
    """A run whose files cannot grow beyond a size from some moment on, and its resumption."""
    goal, out, before = _goal(), place / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    moment, at, most = rng.choice(MOMENTS), rng.randint(1, 3), rng.choice(SIZES) + rng.randrange(1 << 10)

    def fills(live: Any) -> None:
        if live.kind == moment and live.step == at:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))

    about = f"{moment} of step {at}, files of {most} bytes"
    try:
        train_tiny(out, listen=fills, **KNOBS)
    except RolltreeError as error:
        if "\n" in str(error) or str(out) not in str(error):
            raise BrokenPromiseError(f"{about}: no sentence with the place: {error!s:.300}") from error
    except OSError as error:  # the command line makes a sentence of it
        if not str(error.filename).startswith(str(out)):
            raise BrokenPromiseError(f"{about}: the place is not named: {error!r:.300}") from error
    else:
        return "it fits"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for saved in checkpoints(out / "checkpoints"):
        check_seal(saved.path)
    again = train_tiny(out, resume=True, **KNOBS)
    if any(not torch.equal(tensor, goal[name]) for name, tensor in again.items()):
        raise BrokenPromiseError(f"{about}: the run went on to other weights")
    return "a sentence, and it went on"


ATTACKS = (Attack("full-disk", "disks that fill at any moment of a run", filled, 3, 200),)
