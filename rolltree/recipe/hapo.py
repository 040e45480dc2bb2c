"""HAPO: heterogeneous adaptive policy optimisation (arXiv 2509.16591)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.generate.methods.hapo import Tempered
from rolltree.objective.against import against
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.varying import Knob


@dataclass(frozen=True, slots=True)
class Hapo:
    """Every action is treated by its entropy: how far it may move, and how much it is credited.

    Uncertain actions may rise further, certain ones fall further; certain ones learn less while their ratio is near 1.
    The group's mean runs over tokens, so that a group's credit sums to zero. Rollouts are drawn hotter where they are
    uncertain and colder where they are certain, by up to `tau`, on the scale of the last step's log-entropies
    (`policy/log_entropy_pivot`, their 0.8-quantile, and their ends); the first step is drawn as it is. Ratios are
    against the distribution that sampled. Released code gives the normalised entropy one sign only, so certain actions
    are treated as uncertain ones; here it has both.
    """

    card: ClassVar[Card] = Card(
        "hapo", "Heterogeneous adaptive policy optimisation", "2509.16591", 2025,
        "above DAPO on AIME and others for Qwen2.5-Math-1.5B, -7B and Qwen3-8B, with higher entropy",
        ("filter", "credit", "objective"), "dapo",
        Evidence("pass@1", "dapo", least=0.04, task="regime:fresh", seeds=6, settings=("dapo:overlong=False",)),
        counter=Counter("policy/entropy_scaled"),
    )  # fmt: skip
    group: int = 8
    clip_low: float = 0.2
    clip_high: float = 0.2
    alpha: float = 1.0
    """How far the clip bounds widen with an action's normalised log-entropy."""
    beta: float = 1.0
    """How far the credit of an action falls or rises with its normalised log-entropy."""
    dual: float = 10.0
    tau: float = 0.05
    """How far the sampler's temperature follows the entropy; 0 = not at all."""
    pivot: Knob | None = "last policy/log_entropy_pivot or none"
    """Log-entropy at which actions are drawn at temperature 1."""
    most: Knob = "last policy/log_entropy_most or 0"
    """Log-entropy at which the temperature is 1 + `tau`."""
    least: Knob = "last policy/log_entropy_least or 0"
    """Log-entropy at which the temperature is 1 − `tau`."""
    updates: int = 4
    rounds: int = 4

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, mixed groups, token-level group credit, entropy-dependent clip, several updates."""
        check_group("hapo", self.group)
        pivot = None if self.pivot is None else float(self.pivot)
        tempered = Tempered(self.group, self.tau, pivot, float(self.most), float(self.least))
        return Parts(
            "hapo", tempered if self.tau else Independent(self.group), load_credit("token_group"),
            load_objective(
                "hapo", clip_low=self.clip_low, clip_high=self.clip_high, alpha=self.alpha, beta=self.beta,
                dual=self.dual, correction=against("sampled" if self.tau else "old"),
            ),
            averaging="token", filters=(Mixed(),), rounds=self.rounds, optim={"minibatches": self.updates},
        )  # fmt: skip
