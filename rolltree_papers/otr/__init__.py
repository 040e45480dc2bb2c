"""OTR: one-token rollout, fine-tuning on data as a policy gradient (arXiv 2509.26313)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.forced import Demonstrations
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError


@dataclass(frozen=True, slots=True)
class Otr:
    """At every position of a demonstration one token is drawn from the policy; the data's own earns 1, others β.

    In expectation over the draw, so nothing is sampled and no token decoded. At κ = 1 that is (1 − β) times
    probability-weighted fine-tuning; above it, tokens that are not the data's are really pushed down. κ slightly above
    1 and β = −0.1 are (reconstructed). What the policy finds impossible is hardly learned. Give a run `steps`: a budget
    of decoded tokens is never spent.
    """

    card: ClassVar[Card] = Card(
        "otr", "One-token rollout", "2509.26313", 2025,
        "above supervised fine-tuning on mathematics, code and general tasks (Qwen2.5, Qwen3), forgetting less",
        ("generate", "objective"), None,
        Evidence(
            "nats lost on the first language at equal fit of the second", "likelihood (supervised fine-tuning)",
            "lower", 0.05, seeds=5, check="rolltree_papers.otr.study:otr",
        ),
        counter=Counter("policy/data_probability"),
    )  # fmt: skip
    demonstrations: int = 1
    """Right answers given per prompt."""
    beta: float = -0.1
    """Reward of a drawn token that is not the data's."""
    kappa: float = 1.2
    """Temperature of the distribution that the token is drawn from; above 1 other tokens are pushed down."""

    def build(self) -> Parts:
        """Answers of the task's expert, each worth 1, in the closed form of the one-token draw."""
        if self.demonstrations < 1:
            raise RecipeError(f"otr: demonstrations={self.demonstrations} shows nothing; give at least 1")
        return Parts(
            "otr", Demonstrations(self.demonstrations), load_credit("raw"),
            load_objective("one_token", beta=self.beta, kappa=self.kappa), averaging="sequence",
        )  # fmt: skip
