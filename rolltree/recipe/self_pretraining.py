"""Self-Improving Pretraining: online preference between suffixes (arXiv 2601.21343)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.overlong import Shaper
from rolltree.filter.parts import Composite
from rolltree.filter.rewards import RewardPart, Rewards
from rolltree.generate.compared import Compared
from rolltree.generate.demonstrations import Demonstrations
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judged import JUDGED
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, RecipeError


@dataclass(frozen=True, slots=True)
class SelfPretraining:
    """Candidates for what follows a prefix: the text as it was found, the text mended, and the policy's own; the judged
    best is preferred to the judged worst.

    A preference needs no sampling probability, so text the policy did not write can win or lose; a policy gradient
    could not use it. Early the mended text wins, later the policy's own. The judge is the task's verifier, or a frozen
    copy of the first policy that compares every two candidates in both orders by their likelihood, where the paper has
    a tuned judge of quality and one of safety; training it and the rewriter is left out. The found text is an expert's
    answer with mistakes and the mended one without. Equal candidates share their place.
    """

    card: ClassVar[Card] = Card(
        "self_pretraining", "Self-Improving Pretraining", "2601.21343", 2026,
        "86.3 % of judgements of quality against 50, factuality 57.6 against 42.3; 16 rollouts better than 1",
        ("generate", "credit", "objective"), None,
        Evidence(
            "bad continuations of a bad prefix", "likelihood of the judged best candidate", "lower", 0.01, seeds=5,
            check="studies.exact.languages:self_pretraining",
        ),
        counter=Counter("policy/pair_accuracy"),
    )  # fmt: skip
    rollouts: int = 6
    """The policy's own candidates for each prefix (16 in the paper's continued training, 1 from scratch)."""
    mended: int = 1
    """Candidates that are the text, mended."""
    found: int = 1
    """Candidates that are the text as it was found."""
    judge: Literal["verifier", "likelihood"] = "verifier"
    """Who says which candidate is best: the task's verifier, or a frozen copy of the first policy."""
    noise: float = 0.3
    """How often the found text errs."""
    beta: float = 0.1
    """How steeply a preference saturates (DPO's β)."""
    length_mean: bool = False
    """Whether candidates are compared by mean log-prob instead of the sum."""
    imitate: float = 0.0
    """Weight of the chosen candidate's likelihood beside the preference (RF-NLL)."""

    def build(self) -> Parts:
        """Candidates of three sources, the best against the worst, online DPO."""
        if self.rollouts + self.mended + self.found < 2:
            raise RecipeError("self_pretraining: one candidate is preferred to nothing; give two or more")
        own: TreeStrategy = Demonstrations(self.mended, self.found, self.noise, self.rollouts)
        shapers, peers = tuple[Shaper, ...](), dict[str, Peer]()
        if self.judge == "likelihood":
            own, peers = Compared(own, Likelihood()), {"judge": Peer(trained=False, writes=False)}
            shapers = (Composite(Rewards((RewardPart(JUDGED),))),)
        return Parts(
            "self_pretraining", own, load_credit("extremes"),
            load_objective("pairwise", beta=self.beta, length_mean=self.length_mean, imitate=self.imitate),
            averaging="sequence", shapers=shapers, peers=peers,
        )  # fmt: skip
