"""Hierarchical labels with a frozen policy: three topologies (hierarchical text classification with black-box LLMs)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.engine.protocol import Engine
from rolltree.errors import RolltreeError
from rolltree.generate.hand import Hand
from rolltree.generate.judge.engine_judges import likelihoods
from rolltree.generate.judge.protocol import Entry
from rolltree.generate.judge.routed import field_of
from rolltree.generate.strategy import refuse_environment
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts
from rolltree.task.protocol import Item, Task
from rolltree.tree import Tree

# Answers that are leaves of a tree of labels: named at once, by their whole path, or level by level (S087).
#
# A label is a path like `animal/dog`. A role's likelihoods say which option it is: of the leaves' own names, of whole
# paths, or, from the top down, of the children of what was chosen so far, one question a level. The label that was
# chosen is written as the answer.

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


@dataclass(frozen=True, slots=True)
class LabelTree:
    """The label of an item out of a tree of labels: the leaf at once, its whole path, or level by level.

    From the top down every question has few options and an error cannot be mended below; at once there is one question
    with all of them. Labels are compared by the likelihood of their text, where the study let models write freely; only
    its abstract was read. Examples in the prompt are the item's own business.
    """

    card: ClassVar[Card] = Card(
        "label_tree", "Labels at once, by path, or level by level", "HTC black-box", 2025,
        "the whole path at once is best on the deeper hierarchy, at a cost that grows with it; examples always help",
        ("generate",), "best_of_n",
        Evidence("labels right from the top down", "the product of the levels' accuracies", "equal", 0.03,
                 check="rolltree_papers.label_tree.study:down", seeds=5),
        task="labelled:arithmetic", options="--between ,", counter=Counter("budget/role/labeller"),
    )  # fmt: skip
    labels: str = ""
    """Labels as paths, with | between; "" = each item's meta has its own."""
    topology: Literal["leaf", "path", "down"] = "down"
    """DL: leaves at once; DH: whole paths at once; TMH: one question a level."""
    between: str = "/"
    """What stands between two levels."""
    ask: str = "{prompt}{path}"
    """What is read before an option; {prompt}, and {path}, what was chosen so far, are filled in."""
    written: str = "{path}"
    """What is written: {path} or {leaf}."""

    def build(self) -> Parts:
        """A choice; an item has one answer, so who trains on it compares it with the batch's."""
        if self.topology not in ("leaf", "path", "down") or not self.between:
            raise RecipeError(
                f"label_tree: topology={self.topology!r} is leaf, path or down, and between={self.between!r} not empty"
            )
        labels = tuple(label for label in self.labels.split("|") if label)
        strategy = LabelChoice(labels, self.topology, self.between, self.ask, self.written)
        return replace(search_parts("label_tree", strategy), credit=load_credit("reinforce_pp"))
