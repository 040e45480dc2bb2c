"""DTS and DTS*: diffusion tree sampling and search with a frozen policy (arXiv 2506.20701)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.methods.dts import TreeSampling
from rolltree.objective.registry import load_objective
from rolltree.recipe.branch_grpo import steps_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Dts:
    """Every rollout improves soft values all over the tree, and the next one goes where they are high.

    `rolltree rollout dts --task digits` searches; the leaf chosen stands in each tree's notes. Nobody trains on these
    trees in the paper; `rolltree train dts` takes GRPO's update on their leaves, which do not follow the policy's
    distribution. The evidence is DTS's read-out on chains of text whose target is enumerated.
    """

    card: ClassVar[Card] = Card(
        "dts", "Diffusion tree sampling", "2506.20701", 2025,
        "DTS* equals best-of-N with up to a fifth of the denoiser calls (Stable Diffusion 1.5, text diffusion)",
        ("generate", "control"), "flow_grpo",
        Evidence("distance to the distribution that is sampled from", "as many independent paths, weighed", "lower",
                 0.02, seeds=5, check="studies.exact.tilted:dts"),
        task="digits", counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    rollouts: int = 64
    """Most rounds of a search; one that ends in a known leaf draws nothing."""
    branch: str = "0,2,4,6"
    """Denoising steps before which a path may branch, besides the prompt; the paper's images branch at every fifth of
    the steps."""
    scale: float = 10.0
    """λ of the soft values."""
    alpha: float = 0.8
    """How fast a node widens with its visits N: it may have widen · N^alpha children."""
    widen: float = 2.0
    """C: children that a node may have at its first visit."""
    select: Literal["boltzmann", "uct"] = "uct"
    """"boltzmann" is DTS, which samples; "uct" is DTS*, which searches."""
    explore: float = 0.3
    """Of the UCT bonus; rewards here lie in [0, 1]."""
    backup: Literal["soft", "mean", "max"] = "soft"
    """What a node is worth: log mean exp of its children, their mean, or the best."""

    def build(self) -> Parts:
        """The search; group credit and the clipped surrogate for those who train on it."""
        check_group("dts", self.rollouts)
        places = tuple(1 + step for step in steps_of("dts", self.branch))
        search = TreeSampling(
            self.rollouts, places, self.scale, self.alpha, self.widen, self.select, self.explore, self.backup
        )
        return Parts("dts", search, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
