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
from rolltree_papers.grpo_roc import Cleanest
from studies.exact.bandit import train
from studies.lab.claim import Measured
from studies.prompts.page import columns, table

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


def kept_flaws(seed: int, rate: float = 0.4, groups: int = 200) -> tuple[float, float, float, float, int]:
    """Mean penalty of right rollouts kept and of all, share of right ones kept and of all; penalties Beta(2, 3). And
    right rollouts left out though they came among the first as many as were kept."""
    rng, passed = np.random.default_rng([17, seed]), 0
    kept: list[tuple[float, float]] = []
    every: list[tuple[float, float]] = []
    for g in range(groups):
        tree = Tree(f"t{g}", [0])
        for _ in range(32):
            right, penalty = float(rng.random() < rate), float(rng.beta(2, 3))
            tree.extend(0, [1], status="done", scores={"reward": right, "format": 1 - penalty})
        if len({leaf.scores["reward"] for leaf in tree.leaves()}) == 1:
            continue
        Cleanest(16)(tree, 1)
        rows = [(leaf.scores["reward"], 1 - leaf.scores["format"], leaf.usage) for leaf in tree.leaves()]
        every += [(r, f) for r, f, _ in rows]
        kept += [(r, f) for r, f, usage in rows if not usage]
        right = [not leaf.usage for leaf in sorted(tree.leaves(), key=lambda n: n.id) if leaf.scores["reward"]]
        passed += right[: sum(right)].count(False)
    both = [np.array(x) for x in (kept, every)]
    flaws = [float(x[x[:, 0] > 0, 1].mean()) for x in both]
    return flaws[0], flaws[1], float(both[0][:, 0].mean()), float(both[1][:, 0].mean()), passed


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Selection (GRPO-RoC)",
        "16 of 32 rollouts kept, penalties Beta(2, 3).",
        table(["pass rate", "penalty kept", "of all right ones", "share right kept", "of all"], [
            (f"{rate:g}", columns(lambda s, r=rate: kept_flaws(s, r)[:4])) for rate in (0.05, 0.4, 0.9)
        ]),
    ]  # fmt: skip
