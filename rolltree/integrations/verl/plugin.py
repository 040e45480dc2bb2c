"""Loaded by verl in each of its processes (entry point `verl.plugins`): Rolltree's credits and objectives by name.

Registered is what verl tells enough for, each with its defaults: `rolltree_grpo`, `rolltree_rloo`, … as advantage
estimators (`rolltree_given` for trees), `rolltree_clipped`, … as policy losses. Choose others, or knobs, by a module of
your own with `register_credits` and `register_objective`, named in VERL_USE_EXTERNAL_MODULES.
"""

from __future__ import annotations

from collections.abc import Callable

from rolltree.credit.registry import CREDITS
from rolltree.errors import RolltreeError
from rolltree.integrations.verl.credits import advantage_estimator, register_credits
from rolltree.integrations.verl.objectives import policy_loss, register_objective
from rolltree.objective.registry import OBJECTIVES

FLAT = ("group", "baseline", "shaping", "pairwise")
"""Families of credits that say something of rollouts without branches."""


def credits_for_verl() -> list[str]:
    """Credits of whole rollouts that need outcomes alone; verl shows an estimator no tree."""
    flat = [name for name, entry in CREDITS.all().items() if entry.family in FLAT]
    return [name for name in flat if _works(lambda name=name: advantage_estimator(name))]


def objectives_for_verl() -> list[str]:
    """Objectives that need what verl passes to a loss."""
    return [name for name in OBJECTIVES.names() if _works(lambda name=name: policy_loss(name))]


def _works(make: Callable[[], object]) -> bool:
    try:
        make()
    except RolltreeError:
        return False
    return True


register_credits(credits_for_verl())
for _name in objectives_for_verl():
    register_objective(_name, _name)
