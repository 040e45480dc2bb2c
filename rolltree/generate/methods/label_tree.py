"""Answers that are leaves of a tree of labels: named at once, by their whole path, or level by level (S087).

A label is a path like `animal/dog`. A role's likelihoods say which option it is: of the leaves' own names, of whole
paths, or, from the top down, of the children of what was chosen so far, one question a level. The label that was chosen
is written as the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.errors import RolltreeError
from rolltree.generate.hand import Hand
from rolltree.generate.judge.engine_judges import likelihoods
from rolltree.generate.judge.protocol import Entry
from rolltree.generate.judge.routed import field_of
from rolltree.generate.needs import refuse_environment
from rolltree.task.protocol import Item, Task
from rolltree.tree import Tree

Topology = Literal["leaf", "path", "down"]
LABELS = "labels"
"""Key in an item's `meta`, or column of its row of data: its labels, instead of those of the method."""


def children(labels: Sequence[str], above: str, between: str) -> list[str]:
    """The next names below a path, each once, in order; empty below a label."""
    start = above + between if above else ""
    rest = [label[len(start) :] for label in labels if label.startswith(start) and label != above]
    return list(dict.fromkeys(name.split(between)[0] for name in rest))


@dataclass(frozen=True, slots=True)
class LabelChoice:
    """Chooses a label of every item by one topology."""

    labels: tuple[str, ...] = ()
    topology: Topology = "down"
    between: str = "/"
    ask: str = "{prompt}"
    """What is read before an option: {prompt}, and {path}, what was chosen so far with `between` behind it."""
    written: str = "{path}"
    """What is written: {path}, or its last name {leaf}."""
    mean: bool = True
    """Whether options of unequal length are compared per token."""
    needs: frozenset[str] = frozenset({"score"})

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: a label is one answer."""
        refuse_environment(task)

    def check_item(self, item: Item) -> None:
        """Refuse an item without labels to choose from."""
        self._labels(item)

    def _labels(self, item: Item) -> tuple[str, ...]:
        given: Any = field_of(item, LABELS)
        labels = self.labels if given is None else tuple(str(label) for label in given)
        if not labels:
            raise RolltreeError(
                f"item {item.id!r} has no labels to choose from; give labels=, or the item's meta {LABELS!r}"
            )
        return labels

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Choose, write, verify."""
        labels = self._labels(hand.item)
        path = await self._down(hand, labels) if self.topology == "down" else await self._at_once(hand, labels)
        if path is None:
            return
        text = self.written.format(path=path, leaf=path.split(self.between)[-1])
        leaf = await hand.force(tree.root, text, role="policy", why="the label that was chosen")
        if leaf is None:
            return
        if leaf.status == "open":
            hand.close(leaf, "stop", "the label stands")
        if leaf.status == "done":
            await hand.verify(leaf)
            tree.notes["answer"] = leaf.notes.get("answer")

    async def _at_once(self, hand: Hand, labels: Sequence[str]) -> str | None:
        options = labels if self.topology == "path" else [label.split(self.between)[-1] for label in labels]
        found = await self._chosen(hand, "", options)
        return None if found is None else labels[found]

    async def _down(self, hand: Hand, labels: Sequence[str]) -> str | None:
        path = ""
        while options := children(labels, path, self.between):
            found = await self._chosen(hand, path, options) if len(options) > 1 else 0
            if found is None:
                return None
            path = path + self.between + options[found] if path else options[found]
        return path

    async def _chosen(self, hand: Hand, path: str, options: Sequence[str]) -> int | None:
        """The likeliest option; None where they could not be read."""
        so_far = path + self.between if path else ""
        text = self.ask.format(prompt=hand.item.prompt, path=so_far)
        about = [Entry(hand.tree, hand.tree.root)]
        found = await likelihoods(hand, "labeller", text, options, about, mean=self.mean)
        if found is None:
            return None
        best = int(np.argmax(found))
        hand.event("select", None, "the likeliest label", path=path, options=len(options), chosen=options[best])
        return best
