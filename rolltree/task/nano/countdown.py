"""Countdown: reach a target from given numbers with + - *, by attempts of written steps.

`3 5 7>26:` is answered by attempts separated by `;`, each a list of steps `x?y=z` on numbers still in hand:
`3*5=15,15+7=22;3*7=21,21+5=26`. The last attempt is the answer, so a policy may try, see that it missed, and try again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import add, mul, sub
from random import Random
from typing import Any, ClassVar

from rolltree.task.items import SingleTurn, check_level, digest, stream
from rolltree.task.nano.expert import slip
from rolltree.task.protocol import Item, Split, Verdict

NUMBERS = {1: (2, 9), 2: (3, 9), 3: (3, 19), 4: (4, 9)}
"""Level -> how many numbers, and the largest."""
LARGEST_TARGET = 199
OPERATIONS = {"+": add, "-": sub, "*": mul}
STEP = re.compile(r"(-?\d{1,6})([-+*])(-?\d{1,6})=(-?\d{1,6})")
Hand = tuple[tuple[int, str], ...]
"""Numbers in hand, each with the expression that made it."""


class RejectedError(ValueError):
    """An attempt that breaks a rule; the message says which."""


@dataclass(frozen=True)
class Countdown(SingleTurn):
    """Reach the target. `use_all`: every number exactly once; otherwise at most once."""

    measures: ClassVar[frozenset[str]] = frozenset({"attempts", "format"})
    level: int = 2
    use_all: bool = True
    name: str = field(default="countdown", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 48
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(NUMBERS))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Solvable by construction: the target is made from the numbers. Orders of the same numbers share a split."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Exact check of the last attempt. The answer is its expression with commuting operands in order."""
        attempts = text.split(";")
        parts = {"format": 0.0, "attempts": float(len(attempts))}
        try:
            hand = evaluate(attempts[-1], item.meta["numbers"])
        except RejectedError as error:
            return Verdict(0.0, parts, why=str(error))
        value, expression = hand[-1]
        parts["format"] = 1.0
        if self.use_all and len(hand) > 1:
            return Verdict(0.0, parts, expression, f"{len(hand) - 1} of the numbers are left over")
        right = value == item.answer
        return Verdict(float(right), parts, expression, "" if right else f"made {value} instead of {item.answer}")

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """Attempts: a missed one is followed by another with probability 1 - noise; a number slips at noise / 10."""
        attempts: list[str] = []
        while True:
            text, value = _attempt(item, rng, noise)
            attempts.append(text)
            room = self.max_tokens - len(";".join(attempts)) > len(text) + 4
            if value == item.answer or not room or rng.random() < noise:
                return ";".join(attempts)


def evaluate(attempt: str, numbers: tuple[int, ...]) -> Hand:
    """The numbers in hand after an attempt's steps, the last result at the end, or RejectedError."""
    hand: list[tuple[int, str]] = [(number, str(number)) for number in numbers]
    for text in attempt.split(","):
        match = STEP.fullmatch(text)
        if match is None:
            raise RejectedError(f"{text[:20]!r} is not a step like 3*7=21")
        x, y, result = int(match[1]), int(match[3]), int(match[4])
        left, right = _take(hand, x), _take(hand, y)
        if OPERATIONS[match[2]](x, y) != result:
            raise RejectedError(f"{text} is wrong")
        if match[2] in "+*":
            left, right = sorted((left, right))
        hand.append((result, f"({left}{match[2]}{right})"))
    return tuple(hand)


def _take(hand: list[tuple[int, str]], value: int) -> str:
    """Remove the newest number of this value from the hand and return its expression."""
    for index in reversed(range(len(hand))):
        if hand[index][0] == value:
            return hand.pop(index)[1]
    raise RejectedError(f"{value} is not in hand")


def _combine(hand: list[int], rng: Random) -> str:
    """Join two random numbers of the hand into one, in place; returns the step. Results stay within 0..199."""
    while True:
        i, j = rng.sample(range(len(hand)), 2)
        symbol = rng.choice("+-*")
        x, y = hand[i], hand[j]
        result = OPERATIONS[symbol](x, y)
        if 0 <= result <= LARGEST_TARGET:
            rest = [value for k, value in enumerate(hand) if k not in (i, j)]
            hand[:] = [*rest, result]
            return f"{x}{symbol}{y}={result}"


def _attempt(item: Item, rng: Random, noise: float) -> tuple[str, int]:
    """A solution with probability 1 - noise, else random steps; possibly with a slip that spoils the attempt."""
    solved = rng.random() >= noise
    while True:
        hand = list(item.meta["numbers"])
        steps = [_combine(hand, rng) for _ in range(len(hand) - 1)]
        if not solved or hand[0] == item.answer:
            break
    if rng.random() < noise / 10:
        head, _, result = steps[-1].partition("=")
        hand[0] = slip(int(result), rng)
        steps[-1] = f"{head}={hand[0]}"
    return ",".join(steps), hand[0]


def _draw(level: int, rng: Random) -> tuple[str, Item] | None:
    """Numbers and the result of joining them at random."""
    count, largest = NUMBERS[level]
    numbers = [rng.randint(1, largest) for _ in range(count)]
    hand = list(numbers)
    while len(hand) > 1:
        _combine(hand, rng)
    target = hand[0]
    if target < 1:
        return None
    content = " ".join(map(str, sorted(numbers))) + f">{target}"
    prompt = " ".join(map(str, numbers)) + f">{target}:"
    return content, Item(f"countdown-{digest(prompt)}", prompt, target, level, {"numbers": tuple(numbers)})
