"""Arithmetic with a calculator tool that fails now and then.

`calc 312*47-85` is worked out by calls such as `312*47`, answered by `14664` or, when the tool fails, by `err`; the
policy calls again or goes on, and answers `=14579`. Whether a call fails depends on the item and the number of the call
alone, so the same rollout meets the same failures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import ClassVar

from rolltree.task.items import TaskError, check_level, digest, fraction, stream
from rolltree.task.nano.countdown import OPERATIONS
from rolltree.task.nano.expert import slip
from rolltree.task.protocol import Item, Reply, Split, Verdict

CHAINS = {1: (2, 99), 2: (3, 99), 3: (3, 999), 4: (4, 999)}
"""Level -> how many terms, and the largest."""
CALL = re.compile(r"(-?\d{1,9})([-+*])(\d{1,9})\n")
ANSWER = re.compile(r"=(-?\d{1,12})\n?")


@dataclass(frozen=True, slots=True)
class Desk:
    """Calls made, the last number the tool gave (None = none yet), and the answer once given."""

    calls: int = 0
    last: int | None = None
    answer: int | None = None

    @property
    def key(self) -> str:
        """Name of the state: future failures depend on the number of calls alone."""
        return f"{self.calls}:{self.last}"


@dataclass(frozen=True)
class Calculator:
    """Evaluate a chain with a two-number calculator. `fail_rate` is the tool's share of failing calls."""

    measures: ClassVar[frozenset[str]] = frozenset({"calls"})
    level: int = 2
    fail_rate: float = 0.25
    name: str = field(default="calculator", init=False)
    stop: tuple[str, ...] = field(default=("\n",), init=False)
    max_tokens: int = 64
    max_turns: int = 10

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(CHAINS))
        if not 0 <= self.fail_rate < 1:
            raise TaskError(f"calculator's fail_rate must be in [0, 1), not {self.fail_rate}")

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Chains that read the same from left to right and by precedence."""
        return stream(self.name, self.level, split, seed, partial(draw_chain, self.level))

    def start(self, item: Item) -> tuple[Desk, str | None]:
        """No call made."""
        return Desk(), f"{item.id}/{Desk().key}"

    async def step(self, item: Item, state: Desk, text: str) -> Reply:
        """Compute, fail, or take the final answer."""
        if (answer := ANSWER.fullmatch(text)) is not None:
            key = f"{item.id}/{state.key}={answer[1]}"
            return Reply("", replace(state, answer=int(answer[1])), done=True, state_key=key)
        call = CALL.fullmatch(text)
        if call is None:
            return Reply("bad\n", state, state_key=f"{item.id}/{state.key}", failed=True)
        if self.fails(item, state.calls):
            state = replace(state, calls=state.calls + 1)
            return Reply("err\n", state, state_key=f"{item.id}/{state.key}", failed=True)
        value = OPERATIONS[call[2]](int(call[1]), int(call[3]))
        state = replace(state, calls=state.calls + 1, last=value)
        return Reply(f"{value}\n", state, state_key=f"{item.id}/{state.key}")

    def fails(self, item: Item, call: int) -> bool:
        """Whether the tool fails at this call. It never fails more than twice running, so every item can be solved."""
        down = [fraction(f"{item.id}#{index}") < self.fail_rate for index in range(max(0, call - 2), call + 1)]
        return down[-1] and sum(down) < 3

    async def verify(self, item: Item, state: Desk, text: str) -> Verdict:
        """Exact answer."""
        answer = state.answer
        if answer is None and (last := ANSWER.fullmatch(text.rpartition("\n")[2])):
            answer = int(last[1])
        parts = {"calls": float(state.calls)}
        if answer is None:
            return Verdict(0.0, parts, why="no answer was given")
        right = answer == item.answer
        return Verdict(float(right), parts, str(answer), "" if right else f"answered {answer} instead of {item.answer}")

    def act(self, item: Item, state: Desk, rng: Random, noise: float = 0.0) -> str:
        """Call for the next total; mistakes garble an operand, guess after a failure or answer too early."""
        terms, totals = item.meta["terms"], item.meta["totals"]
        known = totals.index(state.last) + 1 if state.last in totals else 0
        last = totals[known - 1] if known else state.last or int(terms[0])
        if known == len(totals) or rng.random() < noise / 3:
            return f"={slip(last, rng) if rng.random() < noise / 3 else last}\n"
        if rng.random() < noise / 2:
            return f"={slip(totals[-1], rng)}\n"
        term = terms[known + 1]
        if rng.random() < noise / 3:
            term = f"{term[0]}{slip(int(term[1:]) + 10, rng)}"
        return f"{last if known else terms[0]}{term}\n"


def draw_chain(level: int, rng: Random) -> tuple[str, Item] | None:
    """A first term, possibly times a second, then sums and differences."""
    count, largest = CHAINS[level]
    terms = [str(rng.randint(2, largest))]
    totals: list[int] = []
    for place in range(count - 1):
        symbol = rng.choice("+-*") if place == 0 else rng.choice("+-")
        term = rng.randint(2, largest)
        terms.append(f"{symbol}{term}")
        totals.append(OPERATIONS[symbol](totals[-1] if totals else int(terms[0]), term))
    if min(totals) < 0 or len(set(totals)) < len(totals):
        return None
    chain = "".join(terms)
    meta = {"terms": tuple(terms), "totals": tuple(totals)}
    return chain, Item(f"calculator-{digest(chain)}", f"calc {chain}\n", totals[-1], level, meta)
