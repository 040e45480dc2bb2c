"""Dropped groups: their trees are handed over with the reason on their leaves when nobody writes in them any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rolltree.control.schedule import Group
from rolltree.filter.groups import drop
from rolltree.rollout.slots import PromptGroup
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class DroppedGroup:
    """A dropped group that has come to rest."""

    plan: int
    order: tuple[int, int]
    """Its place among those of its plan: refused groups first, then those that were too many, then measurements."""
    trees: tuple[Tree, ...]


@dataclass(slots=True)
class Discarded:
    """The dropped groups of a run that were not handed over yet."""

    refusal: Callable[[PromptGroup], str | None]
    """Why the filters refuse a group."""
    _growing: list[Group[PromptGroup]] = field(default_factory=list[Group[PromptGroup]])
    """Those in whose trees somebody may still write."""
    _there: list[DroppedGroup] = field(default_factory=list[DroppedGroup])

    def add(self, group: Group[PromptGroup]) -> None:
        """The scheduler dropped it."""
        self._growing.append(group)

    def why(self, group: Group[PromptGroup]) -> str:
        """The rule or the filter that dropped it."""
        rule = group.usage.removeprefix("dropped: ")
        return (self.refusal(group.item) or rule) if rule == "filter" else rule

    def since(self, plan: int) -> list[Tree]:
        """Trees of this plan and later ones, which stay here."""
        self._collect()
        mine = [group for group in self._there if group.plan >= plan]
        return [tree for group in sorted(mine, key=_in_order) for tree in group.trees]

    def take(self, plan: int | None = None) -> list[Tree]:
        """Hand over those of the plans up to this one, or all; they are forgotten here."""
        self._collect()
        mine = [group for group in self._there if plan is None or group.plan <= plan]
        self._there = [group for group in self._there if plan is not None and group.plan > plan]
        return [tree for group in sorted(mine, key=_in_order) for tree in group.trees]

    def state(self, trees: dict[str, Tree]) -> list[Any]:
        """Plain values; the trees go into `trees` under keys of their own."""
        self._collect()
        out: list[Any] = []
        for number, group in enumerate(self._there):
            keys = [f"dropped {number}.{i}" for i in range(len(group.trees))]
            trees |= dict(zip(keys, group.trees, strict=True))
            out.append([group.plan, list(group.order), [(key, trees[key].id) for key in keys]])
        return out

    def restore(self, state: list[Any], trees: Callable[[str], Tree]) -> None:
        """Go back to that."""
        for plan, (kind, place), named in state:
            found: list[Tree] = []
            for key, name in named:
                tree = trees(key)
                tree.id = name
                found.append(tree)
            self._there.append(DroppedGroup(plan, (kind, place), tuple(found)))

    def _collect(self) -> None:
        at_rest = [group for group in self._growing if not group.item.slots]
        self._growing = [group for group in self._growing if group.item.slots]
        for group in at_rest:
            mine = group.item
            trees, why = mine.trees(), self.why(group)
            for tree in trees:
                drop(tree, why)
            kind = 2 if not mine.for_training else 0 if group.usage == "dropped: filter" else 1
            place = mine.place if mine.for_training else group.number
            self._there.append(DroppedGroup(group.plan, (kind, place), tuple(trees)))


def _in_order(group: DroppedGroup) -> tuple[int, tuple[int, int]]:
    return group.plan, group.order
