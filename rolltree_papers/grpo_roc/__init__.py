"""GRPO-RoC: resample on correct, the selection of rStar2-Agent (arXiv 2508.20722)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.horizon import Horizon
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed, live_leaves
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.tree import Node, Tree

# Which of many rollouts teach: all classes in proportion, and of the right ones the cleanest (GRPO-RoC).


def flaws(tree: Tree, leaf: Node) -> float:
    """How unclean a rollout is: the share of its tool calls that failed, plus 1 − its score `format` where it has one.

    Without a tool call the first part is 1/2 in a tree where the environment was ever asked, and 0 where none is.
    """
    calls = [n for n in tree.path(leaf) if n.role == "env"]
    asked = bool(calls) or any(n.role == "env" for n in tree)
    errors = sum(bool(n.notes.get("failed")) for n in calls) / len(calls) if calls else 0.5 * asked
    return errors + (1 - min(max(leaf.scores.get("format", 1.0), 0.0), 1.0))


def quotas(right: int, wrong: int, keep: int, least: int = 2) -> tuple[int, int]:
    """How many right and wrong rollouts of a group are kept: in proportion, but `least` of each if there are any.

    As released (arXiv 2508.20722): a class that would get `least` or fewer gets as many as it has, at most `least`.
    """
    total = right + wrong
    if total <= keep:
        return right, wrong
    keep_wrong = round(wrong * keep / total)
    keep_right = keep - keep_wrong
    if keep_wrong <= least:
        keep_wrong = min(least, wrong)
        keep_right = keep - keep_wrong
    elif keep_right <= least:
        keep_right = min(least, right)
        keep_wrong = keep - keep_right
    return min(keep_right, right), min(keep_wrong, wrong)


@dataclass(frozen=True, slots=True)
class Cleanest:
    """Keeps `keep` leaves of a group before credit: wrong ones in order of creation, right ones with fewest flaws.

    Taking the wrong ones as they come keeps failures diverse. The paper describes a draw that favours clean ones; the
    released code, followed here, takes the cleanest. The rest is dropped with that reason.
    """

    keep: int = 16
    least: int = 2
    correct: float = 0.5

    def __call__(self, tree: Tree, limit: int) -> None:
        """Drop what is not kept; groups no larger than `keep` stay whole."""
        leaves = sorted(live_leaves(tree), key=lambda n: n.id)
        right = [n for n in leaves if n.scores["reward"] > self.correct]
        wrong = [n for n in leaves if n.scores["reward"] <= self.correct]
        keep_right, keep_wrong = quotas(len(right), len(wrong), self.keep, self.least)
        right.sort(key=lambda n: (round(flaws(tree, n), 9), n.id))
        for leaf in (*right[keep_right:], *wrong[keep_wrong:]):
            leaf.usage = "dropped: enough cleaner rollouts of its kind"
        tree.event("select", None, "the cleanest right ones", right=keep_right, wrong=keep_wrong, of=len(leaves))


@dataclass(frozen=True, slots=True)
class GrpoRoc:
    """Twice as many rollouts as are trained on; of the right ones those with fewest tool errors and format faults stay.

    Nothing is penalised in the reward, so there is nothing to hack; advantages are those of the kept group. The
    evidence is a bandit, whose baseline knows the penalties too and takes half of them off its reward. The paper's
    stages of length (8k, 12k, 12k) are `tokens="8192, 12288 at 300"`, off by default, and when they change is
    reconstructed; its judge service is not part of the recipe. The format part of the penalty is 1 − the score
    `format` (reconstructed); the released one is 1 for a missing answer tag, else min((answers − 1) / turns, 1).
    """

    card: ClassVar[Card] = Card(
        "grpo_roc", "Resample on correct", "2508.20722", 2025,
        "80.6 on AIME 2024 with 14B in 510 steps, with shorter answers than much larger models",
        ("generate", "filter"), "dapo",
        Evidence("right answers after training, times how clean they are", "as many at random, penalised",
                 "higher", 0.02, seeds=5, check="rolltree_papers.grpo_roc.study:grpo_roc"),
        counter=Counter("rollout/dropped/enough cleaner rollouts of its kind"),
    )  # fmt: skip
    group: int = 32
    """Rollouts sampled."""
    keep: int = 16
    """Rollouts that are trained on."""
    tokens: Knob = 0
    """Most policy tokens of a rollout, by the step; 0 = as many as the run allows."""
    clip_low: float = 0.2
    clip_high: float = 0.28

    @at_start
    def build(self) -> Parts:
        """Oversampled rollouts, mixed groups, selection, group credit on what is kept."""
        if self.keep < 3:
            raise RecipeError(f"grpo_roc: keep={self.keep} may keep wrong rollouts alone; give at least 3")
        if self.group < self.keep:
            raise RecipeError(f"grpo_roc: {self.keep} of {self.group} rollouts cannot be kept; sample at least as many")
        return Parts(
            "grpo_roc", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="token",
            filters=(Mixed(),), shapers=(Cleanest(self.keep),),
            control=Horizon(turns=0, tokens=round(float(self.tokens))),
        )  # fmt: skip
