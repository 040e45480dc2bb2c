"""Run folders with files cut, gone, swapped, flipped and rewritten, given to every verb that reads one, and resumed.

Promised: each is read or refused in a sentence, and what was refused is as it was.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from rolltree.errors import RolltreeError
from tests.attack.frame import Attack
from tests.attack.inputs import answered, refused
from tests.attack.models import harm, rewrite, train_tiny
from tests.attack.odd import VALUES, broken_json

KNOBS = {"forests_every": 1, "eval_every": 1}
VERBS = ("doctor run", "card run", "budget run", "doctor run/forests", "card run/forests/step=2")


@functools.cache
def _template() -> Path:
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp(prefix="attack-runs-"))
    train_tiny(place / "run", steps=2, **KNOBS)
    return place / "run"


def looked(rng: random.Random, place: Path) -> str:
    """A harmed run and a verb that reads it."""
    _harmed(rng, place)
    return answered(rng.choice(VERBS).split(), place)


def resumed(rng: random.Random, place: Path) -> str:
    """A harmed run that goes on."""
    about = _harmed(rng, place)
    fallback = rng.random() < 0.5

    def work() -> None:
        try:
            train_tiny(place / "run", resume=True, steps=3, fallback=fallback, **KNOBS)
        except OSError as error:
            if error.filename is None:
                raise
            raise RolltreeError(str(error)) from error  # the command line makes a sentence of it

    return refused(work, about)


def _harmed(rng: random.Random, place: Path) -> str:
    run = place / "run"
    shutil.copytree(_template(), run)
    files = [p for p in sorted(run.rglob("*")) if p.is_file() and "checkpoints" not in p.parts]
    for file in rng.sample(files, rng.choice((1, 1, 2))):
        if file.suffix == ".jsonl" and rng.random() < 0.7:
            _line(rng, file)
        elif file.suffix == ".json" and rng.random() < 0.5:
            rewrite(rng, file)
        else:
            harm(rng, file)
    return ", ".join(str(f.relative_to(run)) for f in files)


def _line(rng: random.Random, file: Path) -> None:
    """One line of a file of JSON lines becomes something else."""
    lines = file.read_text().splitlines()
    at = rng.randrange(len(lines))
    told: Any = json.loads(lines[at])
    how = rng.randrange(3)
    if how == 0:
        told[rng.choice(sorted(told))] = rng.choice(VALUES)
        lines[at] = json.dumps(told)
    elif how == 1:
        lines[at] = broken_json(rng, lines[at])
    else:
        lines[at] = json.dumps(rng.choice(VALUES))
    file.write_text("\n".join(lines) + rng.choice(("\n", "")), errors="replace")


ATTACKS = (
    Attack("runs", "harmed run folders, and the verbs that read one", looked, 6, 400),
    Attack("runs-resumed", "harmed run folders, resumed", resumed, 1, 200),
)
