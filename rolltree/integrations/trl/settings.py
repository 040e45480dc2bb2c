"""A recipe's objective in the words of TRL's configuration."""

from __future__ import annotations

from typing import Any

from rolltree.generate.strategy import TreeStrategy
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.parts import portable
from rolltree.objective.batch import Objective
from rolltree.objective.clipped import Clipped
from rolltree.objective.compose import Composed
from rolltree.objective.penalty import KlPenalty
from rolltree.recipe.recipe import Parts, Recipe

LOSSES = {"token": "dapo", "sequence": "grpo", "fixed": "dr_grpo"}
"""TRL's loss for each averaging. "grpo" and "dr_grpo" count masked rows in their mean, "dapo" does not."""


def grpo_settings(recipe: str | Recipe | Parts | TreeStrategy) -> dict[str, Any]:
    """Keywords for `GRPOConfig` with which TRL's loss is the recipe's clipped objective.

    An objective that TRL has no counterpart of is refused: choose one of TRL's losses yourself, the rollouts and the
    credit stay the recipe's.
    """
    parts = portable(recipe, "TRL")
    surrogate, beta = _surrogate(parts.objective)
    if surrogate is None or surrogate.against != "old" or parts.averaging not in LOSSES:
        what = f"the averaging {parts.averaging!r}" if surrogate is not None else "the objective"
        raise AdaptError(
            f"{what} of the recipe {parts.name!r} has no counterpart in TRL; set GRPOConfig(loss_type=…) yourself, "
            "rollouts and credit do not depend on it"
        )
    return {
        "loss_type": LOSSES[parts.averaging], "epsilon": surrogate.clip_low, "epsilon_high": surrogate.clip_high,
        "delta": surrogate.dual, "beta": beta, "scale_rewards": "none",
    }  # fmt: skip


def _surrogate(objective: Objective) -> tuple[Clipped | None, float]:
    """The clipped surrogate inside an objective and the weight of its KL term; None where TRL has no such loss."""
    if isinstance(objective, Clipped):
        return objective, 0.0
    if not isinstance(objective, Composed) or objective.corrections or len(objective.penalties) != 1:
        return None, 0.0
    inner, cost = objective.surrogate, objective.penalties[0]
    known = isinstance(cost, KlPenalty) and (cost.estimator, cost.anchor, cost.weighted) == ("k3", "reference", False)
    if isinstance(inner, Clipped) and isinstance(cost, KlPenalty) and known:
        return inner, cost.coefficient
    return None, 0.0
