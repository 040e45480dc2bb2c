"""Tree-Planner: efficient close-loop task planning (arXiv 2310.08582)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.methods.tree_planner import PlanTries
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class TreePlanner:
    """Whole plans from one prompt, merged in a trie; the policy is asked only where plans part.

    An action that fails is a correction: the walk goes back to the nearest place with another way, in the state of
    then, which is free only where the environment can be copied. A fork's options are compared by the likelihood of
    their text after what the environment has said, instead of by a majority of sampled letters; to end is chosen only
    where nothing else is left, and what an action failed with is not shown to the next choice. Unlike the released code
    it ends where the plan or the environment ends, not where the goal happens to hold. Plans are cheaper than asking at
    every step for long tasks and few plans, and dearer otherwise (`python -m studies.search.planner`).
    """

    card: ClassVar[Card] = Card(
        "tree_planner", "Plans sampled once and walked as a tree", "2310.08582", 2023,
        "92.2 % fewer tokens than the best previous method and 40.5 % fewer error corrections on VirtualHome",
        ("generate", "control"), "grpo",
        Evidence("tokens of asking at each step", "tokens of plans and choices, 12 actions, 25 plans",
                 check="studies.search.planner:cheaper", seeds=5),
        counter=Counter("budget/role/planner"),
    )  # fmt: skip
    plans: int = 25
    """N: plans that are sampled (25 or 50 in the paper)."""
    corrections: int = 10
    """Most actions that may fail; 0 = none may."""
    ask: str = "{prompt}"
    """What the planner reads; {prompt} is filled in."""
    action: str = ""
    """Regular expression of an action in a plan; "" = what ends with one of the task's stop strings."""
    plan_tokens: int = 64
    """Most tokens of a plan."""

    def build(self) -> Parts:
        """Plans and a walk; a tree has one outcome, so who trains on it compares it with the batch's."""
        check_group("tree_planner", self.plans, least=1)
        strategy = PlanTries(self.plans, self.corrections, self.ask, self.action, self.plan_tokens)
        return replace(search_parts("tree_planner", strategy), credit=load_credit("reinforce_pp"))
