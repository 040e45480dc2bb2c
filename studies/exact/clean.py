"""A bandit whose right answers are more or less clean: trained on the cleanest of a group (GRPO-RoC), or on a reward
that the same flaws lower."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import live_leaves
from rolltree.filter.lengths import Shaper
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Node, Tree
from studies.exact.bandit import train
from studies.lab.claim import Measured

PROMPTS, ANSWERS, RIGHT, STEPS = 8, 40, 0.4, 100
SAMPLED, KEPT = 32, 16
PENALISED = 0.5
"""What a penalty of 1 takes off the reward of the baseline."""


@dataclass(frozen=True)
class AtRandom:
    """Keeps as many leaves of a group, whatever they are."""

    keep: int
    rng: np.random.Generator

    def __call__(self, tree: Tree, limit: int) -> None:
        """Drop the rest; `limit` is not used."""
        leaves = live_leaves(tree)
        for i in self.rng.permutation(len(leaves))[self.keep :]:
            leaves[i].usage = "dropped: at random"


@dataclass
class Watched:
    """A recipe's selection, and how many right rollouts it passed over that came before one it kept."""

    inner: Shaper
    passed: int = 0

    def __call__(self, tree: Tree, limit: int) -> None:
        """Select and count."""
        self.inner(tree, limit)
        right = [not leaf.usage for leaf in sorted(tree.leaves(), key=lambda n: n.id) if leaf.scores["reward"] > 0.5]
        self.passed += right[: sum(right)].count(False)


def trained(seed: int, shaper: Shaper, penalised: float = 0.0) -> list[float]:
    """Chance of an answer that is right, times how clean it is, step by step; answers are right or not and have a
    penalty Beta(2, 3)."""
    rng = np.random.default_rng([59, seed])
    right = (rng.random((PROMPTS, ANSWERS)) < RIGHT).astype(float)
    penalty = rng.beta(2, 3, (PROMPTS, ANSWERS))

    def judge(leaf: Node, answer: int) -> None:
        # A judge is told the answer alone; the tree says whose it is.
        leaf.scores["answer"] = float(answer)

    def verdict(tree: Tree, limit: int) -> None:
        prompt = int(tree.id[1:])
        for leaf in tree.leaves():
            answer = int(leaf.scores["answer"])
            flaw = float(penalty[prompt, answer])
            leaf.scores.update(reward=float(right[prompt, answer]) - penalised * flaw, format=1 - flaw)

    policies = train(load_credit("grpo"), np.zeros((PROMPTS, ANSWERS)), judge, group=SAMPLED, steps=STEPS, seed=seed,
                     shapers=(verdict, shaper))  # fmt: skip
    return [float((policy * right * (1 - penalty)).sum(1).mean()) for policy in policies]


def grpo_roc(seed: int) -> Measured:
    """Right and clean after training on the recipe's 16 of 32 rollouts, against 16 of 32 at random whose reward the
    same penalties lower; the curves have 16 at random without them too."""
    (cleanest,) = load_recipe("grpo_roc").build().shapers
    own = Watched(cleanest)
    curves = {
        "the cleanest": trained(seed, own),
        "penalised, at random": trained(seed, AtRandom(KEPT, np.random.default_rng([60, seed])), PENALISED),
        "at random": trained(seed, AtRandom(KEPT, np.random.default_rng([60, seed]))),
    }
    shown = {name: ([float(i) for i in range(len(c))], c) for name, c in curves.items()}
    acted = {"right rollouts passed over for cleaner ones": float(own.passed)}
    return Measured(curves["the cleanest"][-1], curves["penalised, at random"][-1], shown, acted)
