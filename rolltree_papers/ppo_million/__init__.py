"""PPO with many more environments: more minibatches of the same size (arXiv 2603.06009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.allocate import norm_test, true_ratio
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError


@dataclass(frozen=True, slots=True)
class PpoMillion:
    """PPO that stands still because its outer step is too large for its noise gets more samples, and smaller steps.

    A step asks `environments` prompts and makes ever more updates of `minibatch` prompts at the same learning rate:
    growing the minibatch instead loses, says the paper. With `decay` the clip is centred on a running mean of the
    weights, by which the paper varies the outer step alone. Reconstructed: that the number of prompts follows the noise
    of the last step, where the paper multiplies environments by hand (`eta=0`: it stays, or follows a schedule of
    `environments`). Its other diagnostic is a knob of every recipe: `--lr "5e-4, 1e-4 at 200"`; a plateau that this
    lifts was of this kind.
    """

    card: ClassVar[Card] = Card(
        "ppo_million", "PPO at a million environments", "2603.06009", 2026,
        "over a million environments learn on to a trillion transitions, where fewer stood still below ten billion",
        ("control", "objective"), "ppo",
        Evidence("reward at the end at equal samples", "minibatches that grow with the batch", "higher", 0.02, seeds=5,
                 check="rolltree_papers.ppo_million.study:ppo_million"),
        counter=Counter("optim/updates", rest=1.0),
    )  # fmt: skip
    group: int = 1
    """Rollouts of a prompt; the critic needs no group."""
    environments: Knob = 32
    """Prompts of the first step, each an environment."""
    most: int = 256
    """Most prompts of a step."""
    minibatch: int = 8
    """Prompts of an update, however many a step has."""
    passes: int = 1
    """Over the rollouts of a step."""
    eta: float = 0.5
    """How large the error of a step's gradient may be, as a share of it; 0 = nothing follows it."""
    decay: float = 0.0
    """What each update keeps of the averaged weights that centre the clip; 0 = the policy of the step centres it, as in
    the paper's runs of many environments."""
    gamma: float = 1.0
    trace: float = 0.95
    """λ of the advantage."""
    clip: float = 0.2
    noise: Knob | None = "last optim/noise_scale or none"
    """What the last step's gradients showed."""
    before: Knob | None = "last budget/groups or none"
    """Prompts of the last step."""

    @at_start
    def build(self) -> Parts:
        """PPO with a critic, as many prompts as the noise asks for, in updates of one size."""
        if self.group < 1 or self.minibatch < 2:
            raise RecipeError(
                f"ppo_million: group={self.group} and minibatch={self.minibatch} leave no noise to measure; give 1 "
                "rollout and 2 prompts at least"
            )
        asked = round(float(self.environments or 1))
        if self.eta > 0:
            asked = max(asked, round(float(self.before or 1)))
            seen = None if self.noise is None else true_ratio(float(self.noise), self.minibatch)
            asked = norm_test(seen, asked, self.eta, self.most)
        optim = {
            "minibatch_prompts": self.minibatch, "epochs": self.passes, "gradient_noise": self.eta > 0,
            "proximal_decay": self.decay,
        }  # fmt: skip
        return Parts(
            "ppo_million", Independent(self.group), load_credit("gae", gamma=self.gamma, decay=self.trace, whiten=True),
            load_objective("decoupled", clip_low=self.clip, clip_high=self.clip, prox="ewma" if self.decay else "old",
                           bound="truncate"),
            averaging="token", prompts=min(asked, self.most), optim=optim,
        )  # fmt: skip
