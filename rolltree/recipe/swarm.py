"""SAPO's swarm: nodes that learn from one another's published rollouts (arXiv 2509.08721)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.swarm import FOREIGN, Swarm
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.filter.of_arm import OfArm
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class SwarmRecipe:
    """GRPO on own groups and on groups that other nodes published as text, half and half.

    Foreign text is encoded, judged and scored here, and treated as if this policy had written it: its ratio is one at
    the first update by construction: a clipped policy gradient on off-policy text without a weight, as published. Nodes
    are runs of `rolltree train swarm` that share `folder`, each with a `node` name of its own; they may have other
    models and tokenizers, and none waits for another (the released code waits up to ten minutes). A foreign group may
    be drawn again as long as it is read (`newest` steps of the control), and published answer keys are believed. This
    method and the soft objective `soft_sapo` share nothing but four letters. The evidence is tabular: four nodes that
    know two of eight tasks each, against the same nodes with groups of their own past in the others' places.
    """

    card: ClassVar[Card] = Card(
        "swarm", "Swarm sampling policy optimisation", "2509.08721", 2025,
        "cumulative reward 1,093 with four own and four foreign groups, 562 with eight own (8 x Qwen2.5-0.5B)",
        ("replay", "control"), "grpo",
        Evidence("mean reward of four nodes over the run", "the same nodes alone, the better of new and past groups",
                 "higher", 0.02, seeds=5, check="studies.exact.swarm:swarm"),
        counter=Counter("budget/arm/foreign"),
    )  # fmt: skip
    group: int = 8
    folder: str = "runs/published"
    """Where nodes publish."""
    node: str = "node"
    """The name of this one."""
    foreign: float = 0.5
    """Share of a step's groups that others wrote; at 0.75 the paper's nodes swing and forget."""
    clip_low: float = 0.2
    clip_high: float = 0.28

    def build(self) -> Parts:
        """Independent rollouts beside foreign ones, group credit, asymmetric clip, no KL."""
        check_group("swarm", self.group)
        return Parts(
            "swarm", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="sequence",
            control=Swarm(self.folder, self.node, self.foreign), filters=(OfArm(FOREIGN, Mixed()),),
        )  # fmt: skip
