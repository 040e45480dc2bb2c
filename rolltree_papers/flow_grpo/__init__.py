"""Flow-GRPO: GRPO on the steps of a flow model (arXiv 2505.05470), and MixGRPO's windows of noise (2507.21802)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.branches import Branches, Heat
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, check_group


@dataclass(frozen=True, slots=True)
class FlowGrpo:
    """A flat group of denoising chains per prompt, each worth its outcome less the group's mean over its deviation.

    Steps are drawn with noise, which gives them a density; with a `window` only so many steps from `start` on are, the
    others follow the ODE and teach nothing (MixGRPO; `start` may vary over the run: `start="0->6 over 100"`). Densities
    are summed over pixels, so the clip bounds the true ratio; released code takes their mean, which makes its 1e-4 a
    number of another kind.
    """

    card: ClassVar[Card] = Card(
        "flow_grpo", "Flow-GRPO", "2505.05470", 2025,
        "online RL of flow models by turning the ODE into an SDE with the same marginals", ("generate", "objective"),
        "grpo", task="digits", counter=Counter("budget/trained"),
    )  # fmt: skip
    group: int = 16
    """Chains of a prompt."""
    noise: float = 1.0
    """Factor on the noise of a step."""
    window: int = 0
    """Steps with noise; 0 = all."""
    start: int = 0
    """The first step with noise."""
    clip: float = 0.2
    """Half the window of the ratio."""
    kl: float = 0.0
    """Weight of the penalty on leaving the first policy."""

    def build(self) -> Parts:
        """Independent chains, mean-and-deviation credit, clipped surrogate."""
        check_group("flow_grpo", self.group)
        # The first latent is drawn from the prior: the steps of the denoiser stand behind it.
        heat = Heat(self.noise, (1 + self.start, self.window) if self.window else None)
        return Parts(
            "flow_grpo", Branches(first=self.group, heat=heat), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
        )  # fmt: skip
