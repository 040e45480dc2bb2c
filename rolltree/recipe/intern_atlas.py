"""Intern-Atlas: search along the evolution of methods (its self-guided temporal tree search)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.methods.lineage import OrderedActions
from rolltree.generate.search.proposals import ProposalRules
from rolltree.generate.search.values import judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class InternAtlas:
    """Best first through a graph of successors, forward in time alone; the answer is the most promising chain.

    The graph is an environment whose actions name neighbours and whose answers show a time that `time` reads. Only the
    abstract was read: that one queue orders all open steps by a policy's score, that weak evidence is cut at `least`,
    that a chain may end anywhere and is worth the mean of its steps are reconstructed. The graph of a million papers,
    its typed edges with quotations, and the judging of ideas are left out. Where times are wrong the order harms
    (`python -m studies.search.lineage`).
    """

    card: ClassVar[Card] = Card(
        "intern_atlas", "Temporal tree search over a graph of methods", "Intern-Atlas", 2026,
        "strong agreement of evolution chains with those of experts (no number in the abstract)",
        ("generate", "control"), "grpo",
        Evidence("planted chain found, a tenth of the times wrong", "the same queue without an order of time",
                 least=0.02, check="studies.search.lineage:chained", seeds=5),
        counter=Counter("rollout/pruned/not followed"),
    )  # fmt: skip
    expansions: int = 20
    """Actions that are done."""
    ways: int = 4
    """Neighbours proposed at a place."""
    time: str = ""
    """Regular expression of a number in the environment's answer that must grow along a chain; "" = no order."""
    least: float = 0.0
    """Proposals scored below it are not followed."""
    worth: str = "step"
    """How promising a neighbour is: path, step or least (confidence), or head:FILE."""

    def build(self) -> Parts:
        """A queue with an order; few paths end, so who trains on them compares them with the batch's."""
        check_group("intern_atlas", self.ways, least=1)
        if self.expansions < 1:
            raise RecipeError(f"intern_atlas: expansions={self.expansions} does nothing; give 1 or more")
        try:
            re.compile(self.time)
        except re.error as error:
            raise RecipeError(f"intern_atlas: time={self.time!r} is no regular expression ({error})") from None
        rules = ProposalRules(self.ways, judge_of(self.worth), tries=0)
        strategy = OrderedActions(self.expansions, self.time, self.least, rules)
        return replace(search_parts("intern_atlas", strategy), credit=load_credit("reinforce_pp"))
