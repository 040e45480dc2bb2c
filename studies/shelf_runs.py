"""Runs of a study: made one after the other, each kept as it comes, counted and priced before the first begins."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rolltree.compare.report import duration
from rolltree.compare.runner import Spec
from rolltree.compare.trace import LabError, Trace
from studies.lab.kept import KeptShelf

SLOW = {"vcpo": 2.5, "poly_ppo": 4.0, "aepo": 1.5, "arpo": 1.5, "mars2": 2.0, "ettrl": 1.5}
"""Recipes that take so many times the processor time of the baseline for a token."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A run with what it is expected to cost in processor seconds."""

    spec: Spec
    seconds: float


@dataclass(frozen=True, slots=True)
class Bill:
    """What is finished of a plan, and what the rest will cost."""

    runs: int
    finished: int
    seconds: float
    """Of processor time that is left."""
    elsewhere: int = 0
    """Runs that the repository keeps, but from other code or libraries; they are made again."""

    def __str__(self) -> str:
        hours = self.seconds / 3600
        kept = f" ({self.elsewhere} are kept from other code or libraries)" if self.elsewhere else ""
        return f"{self.runs} runs, {self.finished} finished{kept}; about {hours:.1f} core-hours are left"


def price(spec: Spec, seconds: float) -> Priced:
    """A run at the regime's price."""
    return Priced(spec, seconds * SLOW.get(spec.arm.recipe, 1.0))


def bill(plan: Sequence[Priced], shelf: KeptShelf) -> Bill:
    """What is left. Prices are corrected by how the finished runs of the plan compare with theirs."""
    left, asked, paid = 0.0, 0.0, 0.0
    finished = 0
    for one in plan:
        trace = shelf.get(one.spec)
        if trace is None:
            left += one.seconds
            continue
        finished += 1
        if (took := trace.total("time/processor")) is not None:
            asked, paid = asked + one.seconds, paid + took
    _, elsewhere = shelf.counted(one.spec for one in plan)
    return Bill(len(plan), finished, left * (paid / asked if asked else 1.0), elsewhere)


def make(
    plan: Sequence[Priced], shelf: KeptShelf, kept: Callable[[Trace, Spec], None], say: Callable[[str], None]
) -> None:
    """Make what is missing, in order; `kept` is told of every run, finished before or now. Ctrl-C loses only the run
    under way, and a later call goes on in the middle of that one where it has a checkpoint."""
    with alone(shelf.folder):
        for one in plan:
            shelf.runner.check(one.spec)
        for number, one in enumerate(plan, 1):
            known = shelf.get(one.spec)
            made = known or shelf.make(one.spec, lambda cost, doing: None)
            if known is None:
                took = made.total("time/processor") or made.cost("seconds")
                say(f"[{number}/{len(plan)}] {one.spec.arm.label} on {one.spec.conditions.task}, seed {one.spec.seed}: "
                    f"{duration(took)}")  # fmt: skip
            shelf.keep(one.spec, made)
            kept(made, one.spec)


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """One study at a time: two would share the processors and spoil each other's costs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "study.lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(f"another study makes runs in {folder}; wait for it, or give another --cache") from None
        yield
