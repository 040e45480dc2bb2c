"""What an attack is, and how its cases are run, counted and written down.

A case is a number. All chance in it comes from (attack, seed, number), so a case that went wrong is run again alone:
`python -m tests.attack NAME --seed S --only N`.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


class BrokenPromiseError(Exception):
    """What must never happen has happened; the message says what."""


class Chance(random.Random):
    """All chance of a case, and its number, for attacks that go through a list."""

    number = 0


One = Callable[[Chance, Path], str]
"""One case: chance and an empty folder in, a short name of what happened out ("refused", "continued"). Whatever it
raises is a case gone wrong."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack."""

    name: str
    about: str
    one: One
    short: int
    """Cases of the short form, which is part of `make test`, or of `make test-ray`: a few seconds each."""
    long: int
    """Cases of `make attack`."""


@dataclass(frozen=True, slots=True)
class Case:
    """What became of one case."""

    attack: str
    seed: int
    number: int
    outcome: str
    bad: bool
    seconds: float = 0.0


@dataclass(slots=True)
class Count:
    """What became of all cases of an attack."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    bad: list[Case] = field(default_factory=list[Case])

    @property
    def cases(self) -> int:
        """How many there were."""
        return self.outcomes.total() + len(self.bad)

    def add(self, case: Case) -> None:
        """One more."""
        if case.bad:
            self.bad.append(case)
        else:
            self.outcomes[case.outcome] += 1

    def line(self, name: str) -> str:
        """One line for people."""
        kinds = ", ".join(f"{count} {what}" for what, count in self.outcomes.most_common())
        return f"{name}: {self.cases} cases, {len(self.bad)} bad" + (f" ({kinds})" if kinds else "")


def attack(
    what: Attack, seed: int, numbers: Sequence[int], log: Path | None = None, end: float | None = None
) -> Iterator[Case]:
    """Run cases; with a log, those that stand in it already are not run again. None begins after `end` (monotonic)."""
    known = _logged(log, what.name, seed) if log is not None else {}
    for number in numbers:
        if number not in known and end is not None and time.monotonic() > end:
            continue
        case = known.get(number) or _run(what, seed, number)
        if log is not None and number not in known:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as sink:
                sink.write(json.dumps(asdict(case)) + "\n")
        yield case


def _run(what: Attack, seed: int, number: int) -> Case:
    rng, began = Chance(f"{what.name}/{seed}/{number}"), time.monotonic()
    rng.number = number
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as place:
        try:
            outcome, bad = what.one(rng, Path(place)), False
        except BrokenPromiseError as broken:
            outcome, bad = str(broken), True
        except Exception:  # also what the case itself did not foresee
            outcome, bad = traceback.format_exc(limit=-4), True
    return Case(what.name, seed, number, outcome, bad, round(time.monotonic() - began, 3))


def _logged(log: Path, name: str, seed: int) -> dict[int, Case]:
    if not log.is_file():
        return {}
    out, text = dict[int, Case](), log.read_text()
    if text and not text.endswith("\n"):
        log.write_text(text + "\n")
    for line in text.splitlines():
        try:
            case = Case(**json.loads(line))
        except (ValueError, TypeError):
            continue  # the line that a killed attack was writing
        if case.attack == name and case.seed == seed and not case.bad:
            out[case.number] = case
    return out
