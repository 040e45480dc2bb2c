"""Chained arithmetic with written steps: `47+38-19=` is answered by its running totals, `85,66`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from rolltree.task.items import check_level, digest, stream
from rolltree.task.nano.expert import slip
from rolltree.task.nano.single import SingleTurn
from rolltree.task.protocol import Item, Split, Verdict

TERMS = {1: (3, 9), 2: (4, 20), 3: (4, 50), 4: (5, 99)}
"""Level -> how many terms, and the largest."""
TOTALS = re.compile(r"-?\d{1,9}(?:,-?\d{1,9})*")


@dataclass(frozen=True)
class Arithmetic(SingleTurn):
    """Add and subtract from left to right, writing every running total. The score is the last one alone."""

    level: int = 2
    name: str = field(default="arithmetic", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 24
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(TERMS))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Random chains whose totals stay non-negative."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Exact last total; `steps` is the share of running totals that stand where they should."""
        if not TOTALS.fullmatch(text):
            return Verdict(0.0, {"format": 0.0, "steps": 0.0}, why="the answer is not a list of totals like 85,66")
        written, right = [int(part) for part in text.split(",")], item.meta["totals"]
        steps = sum(a == b for a, b in zip(written, right, strict=False)) / max(len(written), len(right))
        correct = written[-1] == item.answer
        why = "" if correct else f"ended at {written[-1]} instead of {item.answer}"
        return Verdict(float(correct), {"format": 1.0, "steps": steps}, str(written[-1]), why)

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """Running totals; each slips with probability `noise`, and what follows builds on the slip."""
        terms, total, written = item.meta["terms"], item.meta["terms"][0], list[int]()
        for term in terms[1:]:
            total += term
            if rng.random() < noise:
                total = slip(total, rng)
            written.append(total)
        return ",".join(map(str, written))


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
    meta = {"terms": tuple(terms), "totals": tuple(totals)}
    return prompt, Item(f"arithmetic-{digest(prompt)}", prompt, totals[-1], level, meta)
