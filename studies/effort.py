"""Chained sums whose length is asked for by a token: `2|16+12-9=` (the task `studies/effort.py:Effort`).

The digit is an effort that the policy was trained to obey (`python -m studies.warm tails`). At effort 0 the sum is
answered at once, `=19`; at effort k it is worked out k times, `16+12=28,28-9=19;…`, and the answer is the result that
most of the passes have. A pass errs, so more effort is right more often and costs in proportion. How many terms there
are has a heavy tail (Pareto, α = 1.2), and so have the lengths of rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rolltree.task.items import digest, stream
from rolltree.task.nano.expert import slip
from rolltree.task.nano.single import SingleTurn
from rolltree.task.protocol import Item, Split, Verdict

LARGEST, MOST_TERMS, TAIL, EFFORTS = 20, 12, 1.2, 4
AT_ONCE = 0.12
"""How much likelier each further term makes a slip where nothing is written down."""


@dataclass(frozen=True)
class Effort(SingleTurn):
    """The score is the last result; `passes` says how often it was worked out, `obeyed` whether as often as asked."""

    level: int = 1
    name: str = field(default="effort", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 440
    max_turns: int = field(default=0, init=False)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Sums of two terms and more, each with an effort drawn evenly."""
        return stream(self.name, self.level, split, seed, _draw)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Right where the number behind the last `=` is the total."""
        work, equals, said = text.rpartition("=")
        passes = 0 if not work else work.count(";")
        parts = {"passes": float(passes), "obeyed": float(passes == item.meta["effort"])}
        if not equals or not said.lstrip("-").isdigit():
            return Verdict(0.0, parts, why="the answer does not end with =NUMBER")
        return Verdict(float(int(said) == item.answer), parts, str(int(said)))

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """As the effort asks; each pass slips by itself."""
        terms: tuple[int, ...] = item.meta["terms"]
        effort: int = item.meta["effort"]
        if not effort:
            wrong = noise > 0 and rng.random() < min(0.9, noise + AT_ONCE * (len(terms) - 1))
            return f"={slip(item.answer, rng) if wrong else item.answer}"
        passes = [_worked(terms, rng, noise) for _ in range(effort)]
        most = Counter(total for _, total in passes).most_common(1)[0][0]
        return "".join(f"{written};" for written, _ in passes) + f"={most}"


def _worked(terms: tuple[int, ...], rng: Random, noise: float) -> tuple[str, int]:
    total, steps = terms[0], list[str]()
    for term in terms[1:]:
        result = total + term
        if rng.random() < noise:
            result = slip(result, rng)
        steps.append(f"{total}{term:+d}={result}")
        total = result
    return ",".join(steps), total


def _draw(rng: Random) -> tuple[str, Item]:
    count = min(MOST_TERMS, 1 + int(rng.paretovariate(TAIL)))
    effort = rng.randrange(EFFORTS)
    total, terms = 0, list[int]()
    for _ in range(max(2, count)):
        size = rng.randint(1, LARGEST)
        terms.append(-size if terms and size <= total and rng.random() < 0.5 else size)
        total += terms[-1]
    asked = str(terms[0]) + "".join(f"{term:+d}" for term in terms[1:]) + "="
    prompt = f"{effort}|{asked}"
    made = Item(f"effort-{digest(prompt)}", prompt, total, 1, {"terms": tuple(terms), "effort": effort})
    return asked, made
