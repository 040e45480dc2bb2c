"""TreeCUA: exploration of graphical interfaces as trees (arXiv 2602.09662)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.methods.treecua import ExploredActions, ExploreRules
from rolltree.generate.search.proposals import ProposalRules
from rolltree.generate.search.values import judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class TreeCua:
    """Paths through an environment that start at what earlier paths left open, so that the tree grows where it is thin.

    Numbers of proposals, orders and the choice by chance are those of the released code. A step has gone wrong where
    the environment says so, or a judge of the step. A place is come back to as everywhere here: copied, or played again
    and checked against what it said, which is the paper's replay with its divergence. `rolltree labels --kind dpo`
    writes the pairs of siblings: of two actions at one place the one with the better paths behind it (reconstructed).
    Left out are the balance of categories, which is the order of items, starts forbidden because of other trees, and
    the scoring of paths afterwards. Paths of a tree are made one after the other instead of by several workers.
    """

    card: ClassVar[Card] = Card(
        "treecua", "Tree-structured exploration", "2602.09662", 2026,
        "5.5 to 34.6 % on OSWorld by fine-tuning on explored paths, 36.6 with pairs of siblings (Qwen2.5-VL-7B)",
        ("generate", "filter", "control"), "grpo",
        Evidence("different actions seen", "independent episodes of as many actions",
                 check="studies.search.screens:explored", seeds=5),
        counter=Counter("rollout/pruned/left unexplored"),
    )  # fmt: skip
    paths: int = 8
    """Paths of a tree."""
    most_actions: int = 20
    """Most actions of a path."""
    first_ways: int = 10
    """Proposals for each of the first two actions."""
    ways: int = 6
    """Proposals up to the tenth."""
    last_ways: int = 3
    """Proposals behind it."""
    order: Literal["random", "deep", "shallow", "hybrid"] = "hybrid"
    """Where a path starts: anywhere open, deepest or shallowest first, or at the first two actions, then anywhere."""
    grader: str = ""
    """Who says whether a step went wrong: path, step or least (confidence), or head:FILE; "" = the environment."""
    least: float = 0.5
    """A step graded below it went wrong."""

    def build(self) -> Parts:
        """An exploration; its paths are a group."""
        check_group("treecua", self.paths)
        if min(self.most_actions, self.first_ways, self.ways, self.last_ways) < 1:
            raise RecipeError(
                f"treecua: most_actions={self.most_actions}, first_ways={self.first_ways}, ways={self.ways} and "
                f"last_ways={self.last_ways} are 1 or more"
            )
        if self.order not in ("random", "deep", "shallow", "hybrid"):
            raise RecipeError(f"treecua: order={self.order!r} is none of random, deep, shallow and hybrid")
        rules = ExploreRules(self.paths, self.most_actions, (self.first_ways, self.ways, self.last_ways), self.order)
        grader = judge_of(self.grader) if self.grader else None
        return search_parts("treecua", ExploredActions(rules, ProposalRules(self.ways, tries=0), grader, self.least))
