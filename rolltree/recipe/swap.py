"""Any credit and objective in any recipe, flat groups for its trees, the best of several answers: all else stays."""

from __future__ import annotations

import ast
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from rolltree.credit.registry import load_credit
from rolltree.generate.choose import Chosen
from rolltree.generate.independent import Independent
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.scorers import scorer_of
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Parts, Recipe, RecipeError
from rolltree.registry import in_file

SWAPS = ("use_credit", "use_objective", "use_flat", "use_answers")
"""Knobs that every recipe has."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """A recipe with another credit or objective, each written as a name with knobs: `gigpo(omega=0.5)`; "" = its own.

    `use_flat=n` grows n independent rollouts of a prompt instead of a tree: the control that tells what its trees are
    worth from what the rest of a recipe is.

    `use_answers="entropy(answers=4)"` samples several answers at each call and goes on with the best by a scorer:
    confidence, entropy, verifier, lookahead, or a judge as FILE.py:FUNCTION (`rolltree.generate.choose`).

    Extras that the credit reads per action (entropies, alternatives) are recorded where the strategy can. What does not
    fit together is refused by `rolltree.recipe.check` before the first token.
    """

    inner: Recipe
    use_credit: str = ""
    use_objective: str = ""
    use_flat: int = 0
    use_answers: str = ""

    def __post_init__(self) -> None:
        if self.use_flat < 0 or self.use_flat == 1:
            raise RecipeError(
                f"use_flat={self.use_flat} leaves nothing to compare; give 0 (its own trees) or 2 and more"
            )

    @property
    def card(self) -> Card:
        """The recipe's own."""
        return self.inner.card

    def build(self) -> Parts:
        """The recipe's composition with the parts swapped."""
        parts = self.inner.build()
        if self.use_flat:
            flat = _recording(Independent(self.use_flat), parts.credit.needs | parts.objective.needs)
            parts = replace(parts, strategy=flat)
        parts = swapped(parts, self.use_credit, self.use_objective)
        return replace(parts, strategy=choosing(parts.strategy, self.use_answers)) if self.use_answers else parts


def choosing(strategy: TreeStrategy, answers: str) -> TreeStrategy:
    """A strategy with the best of several answers at each call: a scorer's name with its knobs, and `answers`."""
    return Chosen(strategy, *scored_answers(answers))


def scored_answers(answers: str) -> tuple[Judge, int]:
    """The scorer and the number of answers of a text such as `entropy(answers=4)`."""
    name, knobs = named(answers)
    count = knobs.pop("answers", 4)
    if type(count) is not int:
        raise RecipeError(f"use_answers: answers={count!r} is no number of answers; give 2 or more")
    return scorer_of(name, **knobs), count


def swapped(parts: Parts, credit: str = "", objective: str = "") -> Parts:
    """A composition with another credit or objective by name; "" leaves one as it is."""
    if credit:
        name, knobs = named(credit)
        made = load_credit(name, **knobs)
        parts = replace(parts, credit=made, strategy=_recording(parts.strategy, made.needs))
    if objective:
        name, knobs = named(objective)
        parts = replace(parts, objective=load_objective(name, **knobs))
    return parts


def named(text: str) -> tuple[str, dict[str, Any]]:
    """A name with knobs, written `name` or `name(knob=value, …)`; values are numbers, booleans, None, text, tuples."""
    name, bracket, knobs = text.strip().partition("(")
    try:
        assert all(part.isidentifier() for part in (name.rpartition(":")[2] if in_file(name) else name).split("."))
        if not bracket:
            return name, {}
        call = ast.parse(f"part({knobs}", mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        assert not call.args
        assert all(keyword.arg for keyword in call.keywords)
        return name, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise RecipeError(
            f"cannot read {text!r} as a part; write its name, or its name with knobs, as in gigpo(omega=0.5)"
        ) from None


def _recording(strategy: TreeStrategy, needs: frozenset[str]) -> TreeStrategy:
    """The strategy, asked to record the extras among these needs where it has a knob for that."""
    extras = frozenset(need for need in needs if need == "entropy" or need.startswith("top:"))
    knobs = {field.name for field in fields(cast(Any, strategy))} if is_dataclass(strategy) else set[str]()
    knob = next((name for name in ("want", "record") if name in knobs), None)
    if not extras or knob is None:
        return strategy
    return replace(cast(Any, strategy), **{knob: getattr(strategy, knob) | extras})
