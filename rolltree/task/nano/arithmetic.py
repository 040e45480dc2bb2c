"""Chained arithmetic with written steps: `16+12-9=` is answered by `16+12=28,28-9=19`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar

from rolltree.task.items import SingleTurn, check_level, digest, stream
from rolltree.task.nano.expert import slip
from rolltree.task.protocol import Item, Split, Verdict

TERMS = {1: (3, 9), 2: (4, 20), 3: (4, 50), 4: (5, 99)}
"""Level -> how many terms, and the largest."""
STEP = r"-?\d{1,9}[-+]\d{1,9}=-?\d{1,9}"
STEPS = re.compile(rf"{STEP}(?:,{STEP})*")


@dataclass(frozen=True)
class Arithmetic(SingleTurn):
    """Add and subtract from left to right, writing every step. The score is the last result alone."""

    measures: ClassVar[frozenset[str]] = frozenset({"format", "steps"})
    level: int = 2
    name: str = field(default="arithmetic", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 48
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(TERMS))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Random chains whose totals stay non-negative."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Exact last result; `steps` is the share of steps that are exactly right and stand where they should."""
        if not STEPS.fullmatch(text):
            return Verdict(0.0, {"format": 0.0, "steps": 0.0}, why="the answer is not a list of steps like 16+12=28")
        written, right = text.split(","), self.act(item, state, Random(0)).split(",")
        steps = sum(a == b for a, b in zip(written, right, strict=False)) / max(len(written), len(right))
        result = int(written[-1].partition("=")[2])
        correct = result == item.answer
        why = "" if correct else f"ended at {result} instead of {item.answer}"
        return Verdict(float(correct), {"format": 1.0, "steps": steps}, str(result), why)

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """Step by step; each result slips with probability `noise`, and what follows builds on the slip."""
        terms: tuple[int, ...] = item.meta["terms"]
        total, steps = terms[0], list[str]()
        for term in terms[1:]:
            result = total + term
            if rng.random() < noise:
                result = slip(result, rng)
            steps.append(f"{total}{term:+d}={result}")
            total = result
        return ",".join(steps)


def _draw(level: int, rng: Random) -> tuple[str, Item]:
    """A chain of signed terms, each small enough to keep the total from going below zero."""
    count, largest = TERMS[level]
    terms = [rng.randint(1, largest)]
    totals: list[int] = []
    for _ in range(count - 1):
        total = totals[-1] if totals else terms[0]
        size = rng.randint(1, largest)
        terms.append(-size if size <= total and rng.random() < 0.5 else size)
        totals.append(total + terms[-1])
    prompt = str(terms[0]) + "".join(f"{term:+d}" for term in terms[1:]) + "="
    return prompt, Item(f"arithmetic-{digest(prompt)}", prompt, totals[-1], level, {"terms": tuple(terms)})
