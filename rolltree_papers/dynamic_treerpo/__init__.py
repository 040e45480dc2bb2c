"""Dynamic-TreeRPO: a binary tree inside a window of denoising steps (arXiv 2509.23352)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.branches import Branches, Heat
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts


@dataclass(frozen=True, slots=True)
class DynamicTreeRpo:
    """A trunk without noise, then a window in which every step forks, with noise that grows with depth, then the ODE.

    Bounds of the ratio widen with the outcome, and the best leaf's path is imitated a little. The window moves with
    training (`start="0->5 over 200"`). From the abstract and public reviews; reconstructed are the movement, the linear
    form of the noise, the form of the bounds, and the imitation as an advantage (see the parts).
    """

    card: ClassVar[Card] = Card(
        "dynamic_treerpo", "Dynamic-TreeRPO", "2509.23352", 2025,
        "4.9 % better HPS-v2.1 than the best baseline at about half the training time (FLUX.1-dev)",
        ("generate", "credit", "objective"), "flow_grpo", task="digits", counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    depth: int = 4
    """Steps of the window (4: sixteen leaves)."""
    start: int = 0
    """The window's first step; may vary over the run."""
    noise: float = 1.0
    """Factor on the noise of the window's first step."""
    growth: float = 1.0
    """β: how much the noise has grown at the window's end."""
    low: float = 0.1
    """Half the window of the ratio for a very bad leaf."""
    high: float = 0.3
    """Half the window of the ratio for a very good leaf."""
    sharpness: float = 1.0
    """How fast the window widens with the outcome."""
    imitate: float = 0.1
    """Advantage that the best leaf's path gets on top; 0 = none."""
    floor: float = 0.5
    """Least outcome of a best leaf that is imitated."""

    def build(self) -> Parts:
        """Forks in a window, group credit of the leaves averaged over what they share, bounds by outcome."""
        places = tuple(1 + self.start + k for k in range(self.depth))
        heat = Heat(self.noise, (1 + self.start, self.depth), self.growth)
        return Parts(
            "dynamic_treerpo", Branches(places, 2, 1, heat),
            load_credit("best_leaf", base=load_credit("shared_mean"), weight=self.imitate, floor=self.floor),
            load_objective("reward_bounds", low=self.low, high=self.high, sharpness=self.sharpness),
            averaging="token", multiplicity="once",
        )  # fmt: skip
