"""Chained sums worked out with more or less effort: `16+12-9=` (the task `studies/effort.py:Effort`).

An answer begins with its effort, a digit: `0:=19` says the result at once, `2:16+12=28,28-9=19;16+12=28,28-9=19;=19`
works it out twice, and the result is the one that most of the passes have. A pass errs, so more effort is right more
often and costs in proportion. How many terms there are has a heavy tail (Pareto, α = 1.2), and so have the lengths.

The policy (`python -m studies.warm tails`) learned both forms of the task: free (`asked=no`), where it picks its effort
itself, and asked (`asked=yes`), where the digit stands in the prompt, `2|16+12-9=`, and the answer goes on from there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Literal

from rolltree.task.items import SingleTurn, digest, stream
from rolltree.task.nano.expert import slip
from rolltree.task.protocol import Item, Split, Verdict

LARGEST, MOST_TERMS, TAIL, EFFORTS = 20, 12, 1.2, 4
AT_ONCE = 0.12
"""How much likelier each further term makes a slip where nothing is written down."""
NUMBER = re.compile(r"-?[0-9]+")
Asked = Literal["no", "yes", "both"]


@dataclass(frozen=True)
class Effort(SingleTurn):
    """The score is the last result; `passes` says how often it was worked out, `obeyed` whether as often as said."""

    level: int = 1
    asked: Asked = "no"
    """Whether the prompt asks for an effort: no, yes, or in half of the items."""
    name: str = field(default="effort", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 440
    max_turns: int = field(default=0, init=False)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Sums of two terms and more; an effort that is asked for is drawn evenly, and the item says its `share`."""
        return stream(self.name, self.level, split, seed, partial(_draw, asked=self.asked))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Right where the number behind the last `=` is the total."""
        work, equals, said = text.rpartition("=")
        lead, colon, _ = text.partition(":")
        effort = str(item.meta["effort"]) if "effort" in item.meta else lead if colon else ""
        passes = 0 if not work else work.count(";")
        parts = {"passes": float(passes), "obeyed": float(str(passes) == effort)}
        if not equals or not NUMBER.fullmatch(said):
            return Verdict(0.0, parts, why="the answer does not end with =NUMBER")
        return Verdict(float(int(said) == item.answer), parts, str(int(said)))

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """As the effort asks, or as one that is picked; each pass slips by itself."""
        terms: tuple[int, ...] = item.meta["terms"]
        free = "effort" not in item.meta
        effort: int = rng.randrange(EFFORTS) if free else item.meta["effort"]
        lead = f"{effort}:" if free else ""
        if not effort:
            wrong = noise > 0 and rng.random() < min(0.9, noise + AT_ONCE * (len(terms) - 1))
            return f"{lead}={slip(item.answer, rng) if wrong else item.answer}"
        passes = [_worked(terms, rng, noise) for _ in range(effort)]
        most = Counter(total for _, total in passes).most_common(1)[0][0]
        return lead + "".join(f"{written};" for written, _ in passes) + f"={most}"


def _worked(terms: tuple[int, ...], rng: Random, noise: float) -> tuple[str, int]:
    total, steps = terms[0], list[str]()
    for term in terms[1:]:
        result = total + term
        if rng.random() < noise:
            result = slip(result, rng)
        steps.append(f"{total}{term:+d}={result}")
        total = result
    return ",".join(steps), total


def _draw(rng: Random, asked: Asked) -> tuple[str, Item]:
    count = min(MOST_TERMS, 1 + int(rng.paretovariate(TAIL)))
    terms, total = list[int](), 0
    for _ in range(max(2, count)):
        size = rng.randint(1, LARGEST)
        terms.append(-size if terms and size <= total and rng.random() < 0.5 else size)
        total += terms[-1]
    question = str(terms[0]) + "".join(f"{term:+d}" for term in terms[1:]) + "="
    meta: dict[str, Any] = {"terms": tuple(terms)}
    prompt = question
    if asked == "yes" or (asked == "both" and rng.random() < 0.5):
        effort = rng.randrange(EFFORTS)
        prompt = f"{effort}|{question}"
        meta |= {"effort": effort, "share": (effort + 1) / EFFORTS}
    return question, Item(f"effort-{digest(prompt)}", prompt, total, 1, meta)
