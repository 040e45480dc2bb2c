"""ARISE's library of skills in two tiers: a cache that is chosen from, and a reservoir from which it is refilled."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from rolltree.tree.values import storable

FIELDS = ("skill_name", "problem_type", "key_insight", "method", "check")
"""What a document says of its skill."""


@storable
@dataclass(slots=True)
class Skill:
    """One document."""

    name: str
    text: str
    utility: float = 0.0
    """A running mean of what rollouts earned with it, from how its first trial went."""
    uses: int = 0
    """Groups it was shown to."""


@storable
@dataclass(slots=True)
class Library:
    """Skills in use, and those that were."""

    cache: list[Skill] = field(default_factory=list[Skill])
    reservoir: list[Skill] = field(default_factory=list[Skill])

    def update(self, name: str, reward: float, keep: float = 0.9) -> None:
        """ū ← keep · ū + (1 − keep) · R of a group that was shown the skill."""
        for skill in self.cache:
            if skill.name == name:
                skill.utility = keep * skill.utility + (1 - keep) * float(reward)
                skill.uses += 1

    def add(self, skill: Skill) -> bool:
        """Take a new one into the cache; a name that stands is refused."""
        if any(skill.name == known.name for known in (*self.cache, *self.reservoir)):
            return False
        self.cache.append(skill)
        return True

    def settle(self, cache: int, reservoir: int) -> None:
        """In the published order: the lowest leave a cache that is too full, the best of the reservoir takes the place
        of a worse one, and what was never used goes where it is below the reservoir's 10th percentile."""
        while len(self.cache) > cache:
            self.reservoir.append(self.cache.pop(_lowest(self.cache)))
        if self.cache and self.reservoir:
            worst = _lowest(self.cache)
            best = max(range(len(self.reservoir)), key=lambda i: self.reservoir[i].utility)
            if self.reservoir[best].utility > self.cache[worst].utility:
                self.cache[worst], self.reservoir[best] = self.reservoir[best], self.cache[worst]
        if self.reservoir:
            least = float(np.percentile([skill.utility for skill in self.reservoir], 10))
            self.reservoir = [s for s in self.reservoir if s.uses or s.utility >= least]
        while len(self.reservoir) > reservoir:
            del self.reservoir[_lowest(self.reservoir)]


def chances(scores: Sequence[float], sigma: float) -> list[float]:
    """Softmax of the scores over `sigma`."""
    top = max(scores)
    raised = [math.exp((s - top) / sigma) for s in scores]
    return [r / sum(raised) for r in raised]


def first_worth(unaided: Sequence[float], tried: float, correct: float = 0.5) -> float:
    """What a new skill begins with: its one trial beside the group it was concluded from.

    Wrong where some were right without it: −1. Wrong where none were: 0. Right where some were: 0.5, where none: 1.
    """
    known = any(r > correct for r in unaided)
    if tried > correct:
        return 0.5 if known else 1.0
    return -1.0 if known else 0.0


def read(text: str, most: int) -> Skill | None:
    """The document that a text holds, as one line of at most `most` characters; None where it is none.

    It must hold a JSON object, with all fields, none of them empty, and fit (four stages; which ones the paper takes is
    reconstructed).
    """
    found = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        made: Any = json.loads(found.group()) if found else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(made, dict):
        return None
    told = cast("dict[str, Any]", made)
    values = [_line(told.get(name)) for name in FIELDS]
    line = f"{values[0]}: {' '.join(values[1:])}"
    return Skill(values[0], line) if all(values) and len(line) <= most else None


def _line(value: Any) -> str:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return " ".join(" ".join(p.split()) for p in parts if isinstance(p, str)).strip()


def _lowest(skills: Sequence[Skill]) -> int:
    return min(range(len(skills)), key=lambda i: skills[i].utility)
