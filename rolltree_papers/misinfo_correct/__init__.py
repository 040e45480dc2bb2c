"""MisinfoCorrect: replies to misinformation, rewarded by five classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite, weighed
from rolltree.filter.shaping import REPLY
from rolltree.generate.independent import Independent
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.judged import judged_parts
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group

QUESTIONS = {
    "politeness": "Reply: {entry}\nIs this reply polite?",
    "refutation": "Post: {prompt}\nReply: {entry}\nDoes the reply refute the post?",
    "evidence": "Post: {prompt}\nReply: {entry}\nDoes the reply give evidence?",
    "relevance": "Post: {prompt}\nReply: {entry}\nIs the reply about the post?",
}
"""What is asked in place of each classifier."""


@dataclass(frozen=True, slots=True)
class MisinfoCorrect:
    """REINFORCE on politeness, refutation, evidence, relevance and fluency of each reply, with the released weights.

    A classifier is the probability of " yes" against " no" under a frozen copy of the first policy (reconstructed: the
    paper has three fine-tuned ones); fluency is the inverse perplexity of the reply under that copy. With
    `judge="verifier"` all parts are the task's. The leave-one-out mean of the group stands for the moving average
    (reconstructed). What the release does and this does not: one mean reward for a whole batch, no baseline, a
    softmax over time. The evidence holds the reward of each reply against that mean. Start from a policy that replies.
    """

    card: ClassVar[Card] = Card(
        "misinfo_correct", "Counter-misinformation replies", "MisinfoCorrect", 2023,
        "replies that are more polite, more factual and refute more than those of baselines", ("generate", "filter"),
        "rloo",
        Evidence("politeness, refutation and evidence", "one mean reward for the batch, no baseline, as released",
                 "higher", 0.05, seeds=5, check="rolltree_papers.misinfo_correct.study:misinfo_correct"),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    judge: Literal["frozen", "verifier"] = "frozen"
    """Who measures the parts: a frozen copy of the first policy, or the task's verifier."""
    politeness: float = 1.0
    """Weight of a polite tone."""
    refutation: float = 1.0
    """Weight of contradicting the claim."""
    evidence: float = 1.0
    """Weight of giving evidence."""
    fluency: float = 10.0
    """Weight of the inverse perplexity; it needs `kl` where the judge is not the start of the policy."""
    relevance: float = 0.1
    """Weight of speaking about the claim."""
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent replies, five grades each, their weighted sum, leave-one-out credit, score function."""
        check_group("misinfo_correct", self.group)
        rewards = weighed(REPLY, {part.name: getattr(self, part.name) for part in REPLY.parts})
        own: TreeStrategy = Independent(self.group)
        peers = dict[str, Peer]()
        if self.judge == "frozen":
            yes = (" yes", " no")
            known: dict[str, Judge] = {name: Likelihood(ask, options=yes) for name, ask in QUESTIONS.items()}
            known["fluency"] = Likelihood(entry="{text}")
            own = judged_parts(own, {part.name: known[part.name] for part in rewards.parts})
            peers = {"judge": Peer(trained=False, writes=False)}
        return Parts(
            "misinfo_correct", own, load_credit("rloo"), load_objective("clipped", kl=self.kl), averaging="sequence",
            shapers=(Composite(rewards),), peers=peers,
        )  # fmt: skip
