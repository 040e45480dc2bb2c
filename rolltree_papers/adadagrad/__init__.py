"""AdAdaGrad: batches that grow as far as the noise of the gradient asks (arXiv 2402.11215)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.allocate import norm_test
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class AdAdaGrad:
    """GRPO whose prompts a step are set by the norm test: a batch in which noise drowns the gradient is too small.

    The paper's examples are images; here samples are prompts, because rollouts of one prompt are centred on one another
    (`optim/noise_scale` is measured on the last step, each prompt a micro-batch of its own). Batches never shrink. The
    ratio is that of one batch, unsmoothed, so a single noisy step can set the size: `most` bounds it. The optimizer is
    AdamW as everywhere, whose metric is not the test's; the coordinate-wise and inner-product tests are left out.
    """

    card: ClassVar[Card] = Card(
        "adadagrad", "Batches that grow by a norm test", "2402.11215", 2024,
        "the speed of large batches at the quality of small ones on image classifiers", ("control", "objective"),
        "grpo",
        Evidence("rollouts to the target", "the largest batch from the start", "lower", 0.05, seeds=5,
                 check="rolltree_papers.adadagrad.study:adadagrad"),
        counter=Counter("budget/groups", rest=8.0),
    )  # fmt: skip
    group: int = 8
    start: int = 8
    """Prompts of the first step."""
    most: int = 64
    """Most prompts of a step."""
    eta: float = 0.5
    """How large the error of the gradient may be, as a share of it; 0.1 and 0.5 in the paper's examples."""
    clip: float = 0.2
    noise: Knob | None = "last optim/noise_scale or none"
    """What the last step's gradients showed."""
    before: Knob | None = "last budget/groups or none"
    """Prompts of the last step."""

    @at_start
    def build(self) -> Parts:
        """GRPO, as many prompts as the test asks for."""
        check_group("adadagrad", self.group)
        asked = self.start if self.before is None else max(round(float(self.before)), self.start)
        seen = None if self.noise is None else float(self.noise)
        return Parts(
            "adadagrad", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            prompts=norm_test(seen, asked, self.eta, self.most), optim={"gradient_noise": True},
        )  # fmt: skip
