"""Attempts over two banks of records, held against the same without, with exact policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.tree import Forest
from rolltree_papers.tmas import EXPERIENCE, GUIDELINES, Banked, RecordWriter
from studies.lab.claim import Measured as Found
from studies.roles import grown, reader, right

BANKS = (EXPERIENCE, GUIDELINES)


def banked(noise: float, *, hide: tuple[str, ...] = (), epsilon: float = 0.2, n: int = 4, rounds: int = 4) -> Banked:
    """TMAS on letters, with a judge of known errors; a letter is its own record."""
    judge = Votes(MeasuredJudge(noise=noise), 8, "given", "mean")
    return Banked(n, rounds, epsilon, judge, 0.5, Letter(EXPERIENCE, shown="{record}|"),
                  Letter(GUIDELINES, shown="{record}&"), hide=hide)  # fmt: skip


class Letter(RecordWriter):
    """A record without the end mark."""

    async def record(self, hand: Any, entry: Any) -> str:
        """The letter alone."""
        return entry.text.rstrip("!")


def tmas(seed: int) -> Found:
    """Four rounds of four attempts over two banks against the same without banks; the policy trusts what it sees.

    Both arms have as many attempts and the same noisy judge: of a right and a wrong attempt the mean of its eight
    words prefers the wrong one once in six, so what enters the experience may be wrong, and is believed.
    """
    account = Budget()
    shown = grown(banked(2.0), seed, items=150, engine=reader(trusts=True), account=account)
    plain = grown(banked(2.0, hide=BANKS), seed, items=150, engine=reader(trusts=True))
    return Found(right(shown), right(plain), acted=counted("tmas", shown, account))


def repeated(forest: Forest) -> float:
    """Share of the attempts that were shown what had been tried, or would have been, and repeat it."""
    rows = []
    for tree in forest:
        role = str(tree.notes.get("role", ""))
        if role.startswith((GUIDELINES, "plain")):
            before = {n.notes["answer"] for t in forest if t.id == tree.id.split("/")[0] for n in t.leaves()}
            rows += [leaf.notes["answer"] in before for leaf in tree.leaves()]
    return float(np.mean(rows))
