"""UI-S1: semi-online reinforcement learning along logged demonstrations (arXiv 2509.11543)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.filter.first_returns import FirstReturns
from rolltree.generate.methods.ui_s1 import SemiOnlineTurns
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class UiS1:
    """Multi-turn rollouts on logged data: turns that leave the demonstration are patched by it and taught all the same.

    Each turn is compared with the same turn of the prompt's other rollouts by what it led to, and with all turns of the
    prompt by what it earned. Tasks whose rollouts' first returns have a standard deviation of `spread` or less make
    room for others, up to `rounds` rounds; dropped ones say so in their events. The paper writes a thought beside each
    patched action, which is left out. `patches=-1, gamma=0, w_episode=0` is offline training turn by turn. As
    published, an equally good way that is not the demonstration's counts as wrong.
    """

    card: ClassVar[Card] = Card(
        "ui_s1", "Semi-online reinforcement learning", "2509.11543", 2025,
        "12.0 (AndroidWorld) and 23.8 points (AITW) over the base model (7B), without an online environment",
        ("generate", "filter", "credit"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:long", seeds=6),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    group: int = 8
    patches: int = 2
    """How often a rollout may be put back on the way; -1 = always."""
    gamma: float = 0.5
    w_episode: float = 1.0
    """Weight of the comparison of whole episodes."""
    w_step: float = 1.0
    """Weight of the comparison of single turns."""
    spread: float = 0.3
    """Standard deviation of the first turn's return that a task must exceed; below 0 every task is trained on."""
    rounds: int = 3
    """Most rounds of sampling in a step."""
    updates: int = 4
    """Updates of a step."""
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the starting policy; 0.0001 in the paper."""

    def build(self) -> Parts:
        """Rollouts along a demonstration, step and episode terms, clipped surrogate; a shared turn counts once."""
        check_group("ui_s1", self.group)
        return Parts(
            "ui_s1", SemiOnlineTurns(self.group, self.patches),
            load_credit("semi_online", gamma=self.gamma, w_episode=self.w_episode, w_step=self.w_step),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
            multiplicity="once", filters=(FirstReturns(self.spread, self.gamma),), rounds=self.rounds,
            optim={"minibatches": self.updates},
        )  # fmt: skip
