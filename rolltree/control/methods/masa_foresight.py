"""What a policy foretells about its own rollouts, how right it was, and when its word may be acted on (MASA)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, cast

from rolltree.tree.json_text import read_json
from rolltree.tree.values import storable

Part = Literal["notion", "pass", "length"]
EIGHTHS = 8
"""Pass rates are foretold in eighths."""
OBJECT = re.compile(r"\{[^{}]*\}")
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Foretold:
    """A reading of one meta rollout; None where it does not say."""

    passes: int | None = None
    length: int | None = None
    notions: tuple[str, ...] = ()


def read(text: str) -> Foretold:
    """The last JSON object of a text (math_notion, pass_rate, solution_length), or else its numbers and words in order.

    The second form is for policies too small to write JSON. A pass rate beyond 8 eighths says nothing.
    """
    for found in reversed(OBJECT.findall(text)):
        try:
            said: dict[str, Any] = read_json(found, parse_int=_number)
        except ValueError:
            continue
        listed: Any = said.get("math_notion", ())
        notions = cast(list[Any], listed) if isinstance(listed, list) else []
        return Foretold(
            _eighths(said.get("pass_rate")), _whole(said.get("solution_length")),
            tuple(_singular(n.lower().strip()) for n in notions if isinstance(n, str) and n.strip()),
        )  # fmt: skip
    numbers = [_number(n) for n in NUMBER.findall(text)[:2]]
    first, second = (*numbers, None, None)[:2]
    return Foretold(_eighths(first), second, tuple(_singular(w.lower()) for w in WORD.findall(text)))


@dataclass(frozen=True, slots=True)
class Truth:
    """What a prompt's solution rollouts showed."""

    rate: float
    lengths: tuple[int, ...]
    """Of right solutions."""
    right: tuple[str, ...]
    wrong: tuple[str, ...]


def truth(rewards: Sequence[float], lengths: Sequence[int], texts: Sequence[str]) -> Truth:
    """From a delivery's rewards, lengths and texts; right is an outcome of one half or more."""
    rows = list(zip(rewards, lengths, texts, strict=True))
    return Truth(
        sum(min(max(r, 0.0), 1.0) for r in rewards) / len(rewards),
        tuple(n for r, n, _ in rows if r >= 0.5),
        tuple(t.lower() for r, _, t in rows if r >= 0.5),
        tuple(t.lower() for r, _, t in rows if r < 0.5),
    )


def reward(said: Foretold, true: Truth, prompt: str, parts: Sequence[Part] = ("notion", "pass", "length")) -> float:
    """The mean of the parts: 0.01^|error of the pass rate|, length within, and the share of notions that tell.

    As the released code has it: a length counts if it lies strictly between the shortest and the longest right
    solution (so a single length can never be met), a notion if more right than wrong solutions contain it and the
    problem does not.
    """
    worth = {"notion": _notions(said, true, prompt), "pass": 0.0, "length": 0.0}
    if said.passes is not None:
        worth["pass"] = 0.01 ** abs(true.rate - said.passes / EIGHTHS)
    if said.length is not None and true.lengths:
        worth["length"] = float(min(true.lengths) < said.length < max(true.lengths))
    return sum(worth[part] for part in parts) / len(parts)


@dataclass(frozen=True, slots=True)
class Agreed:
    """What a prompt's meta rollouts say together."""

    rate: float | None
    """Mean of the foretold pass rates."""
    trivial: float
    """Share of all meta rollouts that say 8 of 8."""
    hopeless: float
    """Share that says none."""
    length: float | None
    """Median of the foretold lengths."""


def agreed(said: Sequence[Foretold]) -> Agreed:
    """The readings of one prompt; those that say nothing agree with nobody."""
    passes = [s.passes for s in said if s.passes is not None]
    lengths = [s.length for s in said if s.length is not None]
    return Agreed(
        sum(passes) / len(passes) / EIGHTHS if passes else None,
        passes.count(EIGHTHS) / len(said) if said else 0.0,
        passes.count(0) / len(said) if said else 0.0,
        median(lengths) if lengths else None,
    )


@storable
@dataclass(slots=True)
class Trust:
    """How often a kind of prediction came true, older ones counting less; it is acted on once it has earned it."""

    least: float = 0.9
    """Share that must have come true."""
    calls: float = 16.0
    """Predictions that must have been checked before, discounted ones included."""
    keep: float = 0.98
    """What is left of the record with each prediction that is checked."""
    made: float = 0.0
    true: float = 0.0

    @property
    def precision(self) -> float:
        """Share that came true; NaN before the first."""
        return self.true / self.made if self.made > 0 else math.nan

    @property
    def earned(self) -> bool:
        """Whether predictions may be acted on."""
        return self.made >= self.calls and self.precision > self.least

    def check(self, came_true: bool) -> None:
        """Take note of a prediction whose truth is known."""
        self.made = self.keep * self.made + 1
        self.true = self.keep * self.true + came_true


def _number(digits: str) -> int | None:
    """A number as written; those of absurd length cannot be meant, and are slow or impossible to read."""
    return int(digits) if len(digits) < 10 else None


def _eighths(value: Any) -> int | None:
    whole = _whole(value)
    return whole if whole is not None and whole <= EIGHTHS else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) and value >= 0 else None


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and len(word) > 2 else word


def _notions(said: Foretold, true: Truth, prompt: str) -> float:
    fresh = [n for n in said.notions if n not in prompt.lower()]
    telling = [n for n in fresh if sum(n in t for t in true.right) > sum(n in t for t in true.wrong)]
    return len(telling) / len(fresh) if fresh else 0.0
