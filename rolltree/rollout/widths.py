"""A strategy at another width: what lets a plan decide how many rollouts each prompt gets, whatever grows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from rolltree.control.ledger import Limits
from rolltree.control.plan import AsksOwn, Control, Uniform
from rolltree.generate.hand import Hand
from rolltree.generate.strategy import TreeStrategy, WrittenAnswers
from rolltree.rollout.config import RolloutError
from rolltree.tree import Tree

WIDTHS = ("leaves", "n", "nodes", "width")
"""Fields in which strategies keep how many leaves they make."""
MOST = 10_000_000
"""Rollouts of a step. Each takes some kilobytes before its first token."""
PARTS = ("stems", "first")
"""Fields that must not exceed the width: rollouts that start from the prompt."""


def width_of(strategy: object) -> int | None:
    """How many rollouts of a prompt a strategy makes by itself; None where it does not say."""
    for name in WIDTHS:
        value = getattr(strategy, name, None)
        if isinstance(value, int):
            return value
    if isinstance(inner := getattr(strategy, "inner", None), TreeStrategy):
        return width_of(inner)
    waves = [getattr(strategy, name, None) for name in ("stems", "positions", "branches")]
    if all(isinstance(w, int) for w in waves):
        stems, positions, branches = cast(list[int], waves)
        return stems * (1 + positions * branches)
    return None


def check_width(strategy: TreeStrategy, control: Control) -> None:
    """Refuse a control that counts rollouts, or asks, what the strategy cannot."""
    if not isinstance(control, Uniform) and width_of(strategy) is None:
        raise RolloutError(
            f"the strategy {type(strategy).__name__} decides by itself how many rollouts each prompt gets, so the "
            f"control {type(control).__name__} cannot; give it a field `leaves` or `n`, or keep the control uniform"
        )
    if isinstance(control, AsksOwn) and isinstance(strategy, WrittenAnswers):
        raise RolloutError(
            f"the strategy {type(strategy).__name__} gives written answers, and nobody has written any to the "
            f"questions that the control {type(control).__name__} asks; choose a recipe that samples, or another "
            "control"
        )


def check_batch(prompts: int, strategy: TreeStrategy) -> None:
    """Refuse a batch of more rollouts than any memory holds."""
    each = width_of(strategy) or 1
    if prompts * each > MOST:
        raise RolloutError(
            f"{prompts} prompts with {each} rollouts each are more than the {MOST:,} of one step that memory can hold; "
            "lower prompts, or the recipe's number of rollouts"
        )


def at_width(strategy: TreeStrategy, width: int) -> TreeStrategy | None:
    """The same strategy making `width` rollouts; None where no field of it says how many it makes."""
    if not is_dataclass(strategy):
        return None
    known = {f.name for f in fields(strategy) if f.init}
    if "inner" in known:
        inner = at_width(cast(Any, strategy).inner, width)
        return None if inner is None else cast(TreeStrategy, replace(cast(Any, strategy), inner=inner))
    name = next((n for n in WIDTHS if n in known and isinstance(getattr(strategy, n), int)), None)
    if name is None:
        return None
    smaller = {p: width for p in PARTS if p in known and _above(getattr(strategy, p), width)}
    return cast(TreeStrategy, replace(cast(Any, strategy), **{name: width, **smaller}))


@dataclass(frozen=True, slots=True)
class Ordered:
    """A tree strategy that gives each tree the width that was ordered for it.

    A strategy without a width of its own grows as it does and is stopped after so many leaves.
    """

    inner: TreeStrategy
    widths: Mapping[str, int | None]
    """By tree id; None = the strategy's own."""

    @property
    def needs(self) -> frozenset[str]:
        """Those of the inner strategy."""
        return self.inner.needs

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow one tree at its width."""
        width = self.widths[tree.id]
        if width is None:
            await self.inner.grow_tree(tree, hand)
        elif (sized := at_width(self.inner, width)) is not None:
            await sized.grow_tree(tree, hand)
        else:
            await self.inner.grow_tree(tree, hand.under(Limits(leaves=width), "width"))


def _above(value: Any, width: int) -> bool:
    return isinstance(value, int) and value > width
