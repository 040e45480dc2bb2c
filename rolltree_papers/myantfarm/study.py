"""What a chain of roles is worth over one that is asked for the same: `python -m rolltree_papers.myantfarm.study`.

An answer must hold three parts: a diagnosis, a plan and an assessment. An exact policy writes the parts that its prompt
asks for, each with a chance that falls by `crowding` for every further part asked for at once, copies what it sees, and
seldom writes what nobody asked for. The quality weighs the three parts .4, .3 and .3 (reconstructed). Where asking for
several things at once costs nothing, the chain's whole gain is that somebody asked. A chain costs the tokens of several
answers, so it is held against the vote of as many as its tokens buy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.roles import is_side
from rolltree.generate.runner import grow
from rolltree.task.items import SingleTurn
from rolltree.task.protocol import Item, Split, Verdict
from rolltree_papers.myantfarm import Stage, Staged
from studies.command import run_study
from studies.lab.claim import Measured

Arm = Literal["one role", "one role, asked for all", "chain"]
ARMS: tuple[Arm, ...] = ("one role", "one role, asked for all", "chain")
LETTERS = Letters("abcABC?!")
WEIGHTS = {"a": 0.4, "b": 0.3, "c": 0.3}
ASKED, UNASKED, COPIED = 0.9, 0.05, 0.98


@dataclass(frozen=True, slots=True)
class Incident(SingleTurn):
    """Write a, b and c; a prompt's capitals are what it asks for."""

    asks: str = ""
    name: str = "incident"
    level: int = 0
    stop: tuple[str, ...] = ("!",)
    max_tokens: int = 4
    max_turns: int = 0

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """One incident, again and again."""
        number = 0
        while True:
            yield Item(f"{split}-{seed}-{number}", f"{self.asks}?", "abc")
            number += 1

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """The weights of the parts that stand in the answer."""
        return Verdict(sum(w for part, w in WEIGHTS.items() if part in text), answer=text)


def writer(crowding: float) -> TabularEngine:
    """Writes parts in order, then "!"."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        text, out = LETTERS.decode(prefix), [0.0] * len(LETTERS.alphabet)
        at = text.rindex("?") if "?" in text else -1
        # What stands behind the last capital or question mark and the last "!" is being written.
        start = max(at, text.rfind("!"))
        own, seen = text[start + 1 :], text[: start + 1]
        wanted = [c.lower() for c in seen if c in "ABC"]
        left = 1.0
        for part in "abc"["abc".index(own[-1]) + 1 if own else 0 :]:
            chance = UNASKED
            if part in wanted:
                chance = ASKED * crowding ** (len(wanted) - 1)
            if part in seen:
                chance = COPIED
            out[LETTERS.alphabet.index(part)] = left * chance
            left *= 1 - chance
        out[LETTERS.alphabet.index("!")] = left
        return out

    return TabularEngine(row, LETTERS)


def quality(
    arm: Arm, crowding: float, seed: int, items: int = 300, account: Budget | None = None, answers: int = 1
) -> tuple[float, float]:
    """Mean quality of the answer that is voted for, and tokens it cost over all roles and answers."""
    stages = (Stage("diagnoser", "A?"), Stage("planner", "{said}B?"), Stage("assessor", "{said}C?"))
    strategy = Staged(stages if arm == "chain" else (), answers, stage_tokens=4)
    task, budget = Incident("ABC" if arm == "one role, asked for all" else ""), account or Budget()
    forest = asyncio.run(
        grow(strategy, writer(crowding), task, islice(task.items("test", seed), items), seed=seed, budget=budget)
    )
    chosen = [str(tree.notes["answer"]) for tree in forest if not is_side(tree)]
    found = [sum(w for part, w in WEIGHTS.items() if part in answer) for answer in chosen]
    return float(np.mean(found)), (budget.spent.decoded + budget.spent.prefilled) / items


def voted(crowding: float, seed: int, tokens: float, items: int = 300) -> tuple[float, float]:
    """The vote of as many answers of one role that is asked for all as these tokens buy, and what they cost."""
    found = quality("one role, asked for all", crowding, seed, items)
    for answers in range(2, int(tokens)):
        more = quality("one role, asked for all", crowding, seed, items, answers=answers)
        if more[1] > tokens:
            break
        found = more
    return found


def chained(seed: int) -> Measured:
    """The chain against the vote of one role asked for all, where further parts cost a tenth of the chance each."""
    account = Budget()
    chain, tokens = quality("chain", 0.9, seed, account=account)
    return Measured(chain, voted(0.9, seed, tokens)[0], acted=counted("myantfarm", (), account))


@dataclass(frozen=True)
class IncidentsSettings:
    """How much is run."""

    crowding: tuple[float, ...] = field(default=(1.0, 0.9, 0.7))
    """Factor on the chance of a part for every further one that is asked for at once."""


def main(settings: IncidentsSettings) -> None:
    """Quality and tokens by arm."""
    for crowding in settings.crowding:
        tokens = 0.0
        for arm in ARMS:
            found, tokens = quality(arm, crowding, 0)
            print(f"crowding {crowding:.1f}  {arm:24s} quality {found:.3f}  tokens {tokens:.1f}")
        # The chain is the last arm.
        found, tokens = voted(crowding, 0, tokens)
        print(f"crowding {crowding:.1f}  {'one role, vote':24s} quality {found:.3f}  tokens {tokens:.1f}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.myantfarm.study", IncidentsSettings, main, __doc__))
