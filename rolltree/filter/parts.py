"""Rewards and marks made of a verdict's parts: what a task measured beside its score.

A verifier that says how far a rollout came (keys right, steps right, subgoals reached) leaves those parts in the leaf's
scores. The shapers here make a reward of many levels of them, or mark what is right for the wrong reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rolltree.filter.groups import live_leaves
from rolltree.filter.shaping import RewardError, Rewards
from rolltree.generate.judge.measured import part_of
from rolltree.tree import Tree

# Other weights and gates for a reward's parts: a weight of 0 leaves a part out, so that nobody has to measure it.


def weighed(rewards: Rewards, weights: Mapping[str, float], gates: Mapping[str, str] | None = None) -> Rewards:
    """The same reward with these weights, and with gates by part; a part that is not named keeps its own."""
    names = [part.name for part in rewards.parts]
    for name, weight in weights.items():
        if name not in names:
            raise RewardError(f"{name!r} is weighed and is not a part; the reward has {', '.join(names)}")
        if weight < 0:
            raise RewardError(f"part {name!r} weighs {weight}; give 0 to leave it out, or more")
    parts = (replace(part, weight=weights.get(part.name, part.weight)) for part in rewards.parts)
    shut = gates or {}
    kept = tuple(replace(part, gate=shut.get(part.name, part.gate)) for part in parts if part.weight > 0)
    if not kept:
        raise RewardError(f"no part of {', '.join(names)} weighs anything; give one a weight above 0")
    return replace(rewards, parts=kept)


@dataclass(frozen=True, slots=True)
class Composite:
    """The reward becomes the weighted, gated sum of a verdict's parts; the verifier's score stays in `outcome`.

    A leaf that lacks a part is an error: a task that does not measure it must not look like one where all is wrong.
    """

    rewards: Rewards

    @property
    def needs(self) -> frozenset[str]:
        """The parts."""
        return frozenset(f"part:{part.name}" for part in self.rewards.parts)

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf; `limit` is not used."""
        for leaf in live_leaves(tree):
            for part in self.rewards.parts:
                part_of(tree, leaf, part.name)
            leaf.scores.setdefault("outcome", leaf.scores["reward"])
            leaf.scores["reward"] = self.rewards.verdict(leaf.scores).score


@dataclass(frozen=True, slots=True)
class Flawed:
    """Marks right answers reached by wrong steps: score `flawed` = 1 where the part `steps` is below `least`.

    FAPO asks a generative reward model for the first wrong step; where the task checks the steps itself it is that
    model without its errors, and where a judge graded the right answers (`Judged`) `steps` names its grade. A right
    answer that the judge abstained from is not flawed. Wrong answers are not marked.
    """

    steps: str = "steps"
    least: float = 1.0
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The part."""
        return frozenset({f"part:{self.steps}"})

    def __call__(self, tree: Tree, limit: int) -> None:
        """Mark every live leaf; `limit` is not used."""
        for leaf in live_leaves(tree):
            right = leaf.scores["reward"] > self.correct
            leaf.scores["flawed"] = float(right and part_of(tree, leaf, self.steps) < self.least)  # NaN is not below
