"""BRPO: bootstrapped relative policy optimisation, from Writing-Zero (arXiv 2506.00103)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.lengths import Shaper
from rolltree.filter.parts import Composite
from rolltree.filter.shaping import RECORD
from rolltree.filter.versus import Versus
from rolltree.generate.independent import Independent
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judged import JudgedAgainst
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group


@dataclass(frozen=True, slots=True)
class Brpo:
    """Each rollout is compared with a random one of its group: +1 if it wins every vote, else −1, and nothing else.

    Made for writing, where a judge can compare answers but not grade them. The judge here compares what the verifier
    measured (`parts=True`: the graded parts of a record), as exactly as `noise` and `bias` let it. No mean and no
    deviation; groups whose reference was an outlier are left out. A mixed verdict counts as lost, so a noisy judge
    pushes everything down; `split="zero"` mends that. In the evidence grades by the same judge teach GRPO.
    """

    card: ClassVar[Card] = Card(
        "brpo", "Bootstrapped relative policy optimisation", "2506.00103", 2025,
        "WritingBench 6.89 to 8.29 (Qwen3-32B-Base) with fewer hacked explanations than a scalar reward model",
        ("filter", "credit"), "grpo",
        Evidence("quality of the answers", "grpo on the same judge's grades", "higher", 0.02, seeds=5,
                 check="rolltree_papers.brpo.study:brpo"),
        needs=(Need.judge,), counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 16
    votes: int = 1
    """Votes in each of the two orders."""
    judge: Literal["measured", "likelihood"] = "likelihood"
    """Who compares: a frozen copy of the first policy (likelihood), or a judge of the verifier's measure with known
    errors (measured). Where the verifier says only right or wrong, a right answer never loses to the measured one."""
    noise: float = 0.0
    """Deviation of each reading of the judge."""
    bias: float = 0.0
    """What the judge adds to the answer it reads first."""
    split: Literal["loss", "zero"] = "loss"
    """What a mixed verdict counts as: a loss, or nothing (zero)."""
    skew: float = 0.6
    """Groups whose advantages have a larger mean than this, up or down, are left out."""
    parts: bool = False
    """Compare the parts of a structured answer (`rl_struct`'s reward) instead of the outcome alone."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent rollouts, verdicts against one of them, the verdicts as advantages, clipped surrogate."""
        check_group("brpo", self.group)
        own: TreeStrategy = Independent(self.group)
        peers = dict[str, Peer]()
        shapers: tuple[Shaper, ...] = (Composite(RECORD),) if self.parts else ()
        if self.judge == "likelihood":
            own, peers = JudgedAgainst(own, Likelihood(), self.votes), {"judge": Peer(trained=False, writes=False)}
        else:
            shapers += (Versus(MeasuredJudge("reward", self.noise, self.bias), self.votes),)
        return Parts(
            "brpo", own, load_credit("pairwise", split=self.split, skew=self.skew),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=shapers, peers=peers,
        )  # fmt: skip
