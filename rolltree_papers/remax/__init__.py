"""ReMax: the greedy rollout as baseline (arXiv 2310.10505)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage
from rolltree.credit.outcome import outcomes, root_scores
from rolltree.credit.registry import load_credit, register
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.strategy import TreeStrategy
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.tree import Tree
from rolltree.tree.table import Table

# The greedy rollout as baseline.


@register("remax", paper="ReMaxCredit, arXiv:2310.10505", family="baseline")
@dataclass(frozen=True, slots=True)
class ReMaxCredit:
    """A_i = r_i − r(greedy response) (ReMaxCredit, arXiv:2310.10505, eq. 7).

    Put the greedy rollout's reward on the prompt node as the score `greedy_reward`. Unbiased, since the baseline
    does not depend on the sample; one extra greedy decode per prompt. Works with groups of one. A poor fit where the
    greedy answer is far from typical (then the baseline adds variance).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "root:greedy_reward"})

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        middle = root_scores(table, "greedy_reward")[table.leaf_tree]
        return Advantage(leaf=np.where(table.live, outcomes(table) - middle, 0.0))


# The most likely answer beside sampled ones: its outcome stands on the prompt, for credits that compare with it.


@dataclass(frozen=True, slots=True)
class WithGreedy:
    """One greedy rollout beside the inner strategy's; the prompt gets the greedy outcome as `greedy_reward` (ReMax,
    arXiv 2310.10505).

    The greedy rollout has no sampling probability and is not trained on; its tokens are paid for all the same. A tree
    grown in several rounds is given one. Where it failed or the budget had ended the others cannot be compared and are
    dropped.
    """

    inner: TreeStrategy
    writes: ClassVar[frozenset[str]] = frozenset({"root:greedy_reward"})

    @property
    def needs(self) -> frozenset[str]:
        """The inner strategy's, and an engine that can be greedy."""
        return self.inner.needs | {"greedy"}

    @property
    def want(self) -> frozenset[str]:
        """Extras that the inner strategy records."""
        return getattr(self.inner, "want", frozenset())

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Both at once; the inner strategy counts what stands in the tree before the greedy rollout does."""
        alone = "greedy_reward" in tree.root.scores
        async with asyncio.TaskGroup() as group:
            group.create_task(self.inner.grow_tree(tree, hand))
            if not alone:
                group.create_task(self._baseline(tree, hand))
        if "greedy_reward" not in tree.root.scores:
            for leaf in tree.leaves():
                if leaf.parent is not None and not leaf.usage:
                    leaf.usage = "dropped: no greedy rollout to compare with"

    async def _baseline(self, tree: Tree, hand: Hand) -> None:
        leaf = await play(hand, tree.root, temperature=0.0)
        if leaf.parent is not None:
            leaf.usage = "dropped: the greedy baseline"
            if leaf.status == "done" and "reward" in leaf.scores:
                tree.root.scores["greedy_reward"] = leaf.scores["reward"]


@dataclass(frozen=True, slots=True)
class ReMax:
    """REINFORCE with one more rollout per prompt: what the most likely answer earns is taken off what samples earn.

    No critic and no group; the greedy rollout costs as much as a sampled one. A good baseline where the greedy answer
    is typical. The evidence is the noise on an exact tree of decisions whose greedy way earns, against
    leave-one-out over as many rollouts.
    """

    card: ClassVar[Card] = Card(
        "remax", "ReMax", "2310.10505", 2023,
        "PPO's quality at half its memory and 1.6 times its speed; less variance than REINFORCE",
        ("generate", "credit"), "rloo",
        Evidence("noise of the gradient at equal rollouts", "leave-one-out", "lower", 0.05, seeds=5,
                 check="rolltree_papers.remax.study:remax"),
        counter=Counter("rollout/dropped/the greedy baseline"),
    )  # fmt: skip
    group: int = 1
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """A greedy rollout beside the sampled ones, outcomes less the greedy one's, clipped surrogate."""
        if self.group < 1:
            raise RecipeError(f"remax: group={self.group} samples nothing; give at least 1")
        return Parts(
            "remax", WithGreedy(Independent(self.group)), load_credit("remax"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
        )  # fmt: skip
