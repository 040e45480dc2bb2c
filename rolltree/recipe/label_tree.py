"""Hierarchical labels with a frozen policy: three topologies (hierarchical text classification with black-box LLMs)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.methods.label_tree import LabelChoice
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts


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
                 check="studies.labels:down", seeds=5),
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
