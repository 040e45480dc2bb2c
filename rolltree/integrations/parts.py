"""Which recipes another trainer can run: those whose choices lie in rollouts, filters and credit."""

from __future__ import annotations

from rolltree.control.plan import Uniform
from rolltree.credit.registry import load_credit
from rolltree.generate.strategy import TreeStrategy
from rolltree.integrations.errors import AdaptError
from rolltree.objective.registry import load_objective
from rolltree.recipe.check import FROM_TRAINER
from rolltree.recipe.recipe import Parts, Recipe
from rolltree.training.start import parts_of


def portable(recipe: str | Recipe | Parts | TreeStrategy, trainer: str) -> Parts:
    """The parts of a recipe for another trainer; one that needs Rolltree's own loop is refused in one sentence.

    A bare strategy gets GRPO's credit. The objective is the other trainer's own.
    """
    if isinstance(recipe, TreeStrategy):
        name = type(recipe).__name__
        return Parts(name, recipe, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
    parts = parts_of(recipe)
    memory = sorted(parts.credit.needs & FROM_TRAINER)
    lacks = {
        f"the control {type(parts.control).__name__}, but {trainer} decides which prompts get how many rollouts":
            not isinstance(parts.control, Uniform),
        f"trees of earlier steps, but {trainer} asks for fresh ones at every step": parts.recall is not None,
        f"further policies ({', '.join(parts.peers)}), but {trainer} trains one": bool(parts.peers),
        f"{', '.join(memory)} from Rolltree's trainer, which {trainer} does not keep": bool(memory),
    }  # fmt: skip
    for what, lacking in lacks.items():
        if lacking:
            raise AdaptError(f"the recipe {parts.name!r} needs {what}; train it with `rolltree train {parts.name}`")
    return parts
