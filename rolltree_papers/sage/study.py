"""Second attempts with the first in sight, held against the more confident of two, with exact policies."""

from __future__ import annotations

from dataclasses import replace

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.waves import Waves
from rolltree.metrics.reward import waves as waves_of
from rolltree.metrics.rollouts import Rollouts
from rolltree.recipe.registry import load_recipe
from rolltree.tree.table import table
from studies.lab.claim import Measured as Found
from studies.roles import SHOWN, grown, reader, right


def sage(seed: int) -> Found:
    """Second attempts with the first in sight against the more confident of two; exact: p·f + (1 − p)·p, 1 − (1 − p)².

    Reading an attempt and choosing between two both tell right from wrong here, so what is compared is what a second
    attempt makes of it.
    """
    account = Budget()
    own = load_recipe("sage").build().strategy
    assert isinstance(own, Waves)
    forest = grown(replace(own, digests=SHOWN), seed, items=400, account=account)
    two = grown(load_recipe("best_of_n", n=2, final="best").build().strategy, seed, items=400)
    return Found(right(forest), right(two), acted=counted("sage", forest, account))


def regressed(follows: float, seed: int, items: int = 400) -> dict[str, float]:
    """P(second wrong | first right) and P(second right | first wrong); exact: 1 − `follows`, and `ALONE`."""
    strategy = Waves(1, keep=1, judge=Confidence(), digests=SHOWN)
    forest = grown(strategy, seed, items, reader(follows=follows))
    return waves_of(Rollouts(table([tree for tree in forest if "/" not in tree.id])))
