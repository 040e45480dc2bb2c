"""Two waves with tournaments between, held against one tournament, with exact policies."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.generate.waves import Waves
from rolltree.recipe.registry import load_recipe
from studies.lab.claim import Measured as Found
from studies.roles import SHOWN, grown, reader, right


def majority(q: float, votes: int) -> float:
    """Chance that a majority of votes of accuracy q is right; a coin on ties."""
    return sum(
        comb(votes, k) * q**k * (1 - q) ** (votes - k) * (1.0 if 2 * k > votes else 0.5 if 2 * k == votes else 0.0)
        for k in range(votes + 1)
    )


def winner_right(p: float, q: float, votes: int, rounds: int) -> float:
    """Chance that the winner of 2^rounds attempts is right: p' = p² + 2p(1 − p)·Q(q, V), round by round."""
    for _ in range(rounds):
        p = p**2 + 2 * p * (1 - p) * majority(q, votes)
    return p


def _published(recipe: str, **knobs: Any) -> Waves:
    """A recipe's own waves, with digests that letters can write."""
    strategy = load_recipe(recipe, **knobs).build().strategy
    assert isinstance(strategy, Waves)
    return replace(strategy, digests=SHOWN)


def rtv(seed: int) -> Found:
    """Two waves of 16 with tournaments between against one tournament of 32 (232 and 248 votes of accuracy .65).

    The policy trusts what it is shown, so a wrong winner of the first wave misleads the second.
    """
    ours, account = _published("rtv", judge="measured"), Budget()
    flat = replace(ours, n=2 * ours.n, waves=1)
    forest = grown(ours, seed, items=200, engine=reader(trusts=True), account=account)
    one = grown(flat, seed, items=200, engine=reader(trusts=True))
    return Found(right(forest), right(one), acted=counted("rtv", forest, account))
