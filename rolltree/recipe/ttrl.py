"""TTRL: test-time reinforcement learning (arXiv 2504.16084)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.vote import MajorityVote, OnlyVoted
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Ttrl:
    """Learns without labels: independent rollouts vote, and agreeing with the majority is the reward.

    More rollouts vote than are trained on, which are the first `samples`. It is what tree methods without labels
    (ETTRL, ECHO) are to be held against, at as many votes. Where the majority is wrong, training makes it certain;
    `reward/vote_wrong` says how often it is, `solved` and `true_reward` report the truth. The evidence is tabular: it
    says whether training knows more than one vote of the same rollouts would have said, and nothing of a language
    model, in which one question's labels teach another.
    """

    card: ClassVar[Card] = Card(
        "ttrl", "Test-time reinforcement learning", "2504.16084", 2025,
        "AIME 2024 pass@1 of Qwen2.5-Math-7B up by about 211 % without a label", ("filter", "control"), "grpo",
        Evidence("right answers after training on majorities", "one vote of as many rollouts before training",
                 "higher", 0.02, seeds=5, check="studies.exact.votes:ttrl"),
        task="arithmetic",
        counter=Counter("reward/vote_share"),
    )  # fmt: skip
    votes: int = 16
    """Rollouts of a prompt that vote; 64 in the paper."""
    samples: int = 8
    """Of those, rollouts that are trained on; 32 in the paper."""
    ties: Literal["first", "shared", "drop"] = "first"
    """Equal shares: the answer of the earlier rollout wins, every tied answer is right, or no group."""
    silent: Literal["wrong", "vote", "drop"] = "wrong"
    """Rollouts without an answer: they are wrong, they vote for "no answer", or they are left out."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent rollouts, majority labels, group credit on some of them."""
        check_group("ttrl", self.samples)
        if self.votes < self.samples:
            raise RecipeError(f"ttrl: samples={self.samples} of votes={self.votes} cannot teach; give at least as many")
        return Parts(
            "ttrl", Independent(self.votes), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=(MajorityVote(self.ties, self.silent), OnlyVoted(self.samples)),
        )  # fmt: skip
