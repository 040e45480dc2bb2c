"""Look less, reason more: rollouts that say whether a tool is needed (arXiv 2510.01681)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.arms import ToolModes
from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import leaf_scores, outcomes
from rolltree.credit.registry import load_credit, register
from rolltree.filter.modes import Necessity
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.table import Table

# Rollouts compared with those of their own arm.


@register("arm_relative", paper="Adaptive pixel reasoning, arXiv:2510.01681", family="group")
@dataclass(frozen=True, slots=True)
class ArmRelative:
    """A_i = (r_i − mean) / std over the leaves of the prompt with the same `tool_mode`.

    Arms succeed at different rates because of what they were told; a mean over all of them would pay the free rollouts
    for what the forced ones could not do. That each arm has a mean of its own is reconstructed.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "leaf:tool_mode"})
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, mode = outcomes(table), leaf_scores(table, "tool_mode")
        keys = zip(table.leaf_tree.tolist(), mode.tolist(), table.live, strict=True)
        arm = partition.ids((tree, of) if live else None for tree, of, live in keys)
        return Advantage(
            leaf=scaled(centred(reward, arm, "mean"), reward, arm, "std", ddof=self.ddof, eps=self.eps)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdaptivePixel:
    """Forced rollouts say whether a tool helps here and are paid for obeying, free ones for choosing what helps.

    The paper's tool crops images and its arms are 4, 4 and 8 rollouts after fine-tuning on both kinds of traces; here
    any tool of a task will do. It does not print its coefficients, so those of the reward are reconstructed, as are the
    margin between the arms and that each arm is compared within itself. A model that does not heed what an arm is told
    earns no obedience and tells nothing. The evidence is an exact bandit, against a fixed cost of 0.2 a call.
    """

    card: ClassVar[Card] = Card(
        "adaptive_pixel", "Rollout-guided use of a tool", "2510.01681", 2025,
        "73.4 % on HR-Bench 4K with the tool in 20.1 % of the answers, 66.5 % fewer than before",
        ("control", "filter"), "grpo",
        Evidence("free rollouts that use the tool where it helps and only there", "the same arms at a fixed cost",
                 "higher", 0.05, seeds=5, check="rolltree_papers.adaptive_pixel.study:adaptive_pixel"),
        task="calculator", counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    """Free rollouts."""
    forced: int = 4
    """Rollouts of either forced arm."""
    obey: float = 0.2
    """Reward of a forced rollout for using the tool where it had to, and leaving it where it must."""
    align: float = 0.5
    """Reward of a free rollout for using the tool where that helps and leaving it where that hurts."""
    consistency: float = 0.1
    """Reward of a free rollout for choosing as the other free ones did."""
    margin: float = 0.25
    """Smallest difference of the arms' success that counts."""
    answering: int = 1
    """Environment steps of a rollout without tools: 1 where the answer is handed to the environment, else 0."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Arms then free, rewards by what tools are worth here, each arm by itself."""
        check_group("adaptive_pixel", self.group)
        return Parts(
            "adaptive_pixel", Independent(self.group), load_credit("arm_relative"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=ToolModes(self.forced, self.forced, self.group, answering=self.answering),
            shapers=(Necessity(self.obey, self.align, self.consistency, self.margin),),
        )  # fmt: skip
