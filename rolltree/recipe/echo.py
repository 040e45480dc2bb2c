"""ECHO: entropy-confidence hybrid optimisation for test-time reinforcement learning (arXiv 2602.02150)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.vote import MajorityVote
from rolltree.generate.methods.echo import GatedForks
from rolltree.generate.methods.echo_doubt import Doubt
from rolltree.generate.methods.echo_gates import Gate, Gauge
from rolltree.generate.signals import Signal
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Echo:
    """Learns without labels from stems and forced alternatives where entropy is high and confidence low.

    Follows the paper's text: the released gate can never open (its entropy is at most ln 10 = 2.30 against a threshold
    of 3.5, its confidence at least ln 5 = 1.61 against one of 1.2), and every released script turns it off. The
    thresholds here are therefore our own, as shares of the largest value their signal can take, so that they keep their
    meaning under another number of alternatives; ones that cannot fire are refused, and each tree says on how many
    stems its gate opened. `stems` = `leaves` is the released run: no fork at all. ECHO's clip range per
    sequence, 0.05 + 0.15 σ(4(1 − C)), lies in [0.194, 0.197] because C, a mean over the top five, is at most 1/5;
    the constant stands in for it. The penalty of pruned paths, which no trainer reads, is left out. The paper has
    a KL loss, which is off here unless `kl` is given.
    """

    card: ClassVar[Card] = Card(
        "echo", "Entropy-confidence hybrid optimisation", "2602.02150", 2026,
        "0.63 to 12.36 points over test-time baselines (Qwen2.5-7B, Qwen3-8B)",
        ("generate", "control", "filter", "credit"), "ettrl",
        Evidence("pass@1", "ettrl", least=0.04, task="regime:fresh", seeds=6,
                 settings=("ettrl:stems=3", "echo:updates=4")),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    leaves: int = 16
    stems: int = 8
    """Rollouts from the root; as many as leaves = no fork at all."""
    entropy: float = 0.3
    """The gate opens from this share of the largest entropy on (ln of `entropy_top`; 0.7 nats of 2.3 by default)."""
    confidence: float = 0.975
    """... and up to this share of the largest group confidence (1/`confidence_top`; 0.195 of 0.2 by default)."""
    rise: float = 0.087
    """... where entropy has risen by this share (0.2 nats by default)."""
    most: int = 4
    """Most forks of a stem."""
    entropy_top: int = 10
    """Likeliest alternatives whose entropy is read."""
    confidence_top: int = 5
    """Likeliest alternatives whose mean log-prob is the confidence."""
    prune: Literal["none", "truncate", "prune"] = "truncate"
    """"truncate" ends a doubtful leaf where it is and lets it teach; "prune" leaves it out."""
    chunk: int = 4
    """Tokens between two looks for doubt; answers shorter than this are never ended early."""
    shape: float = 0.1
    """a of A_t(1 + a S_t)."""
    clip: float = 0.196
    updates: int = 8
    """Updates of a step; the paper takes one prompt of eight for each."""
    kl: float = 0.0
    ties: Literal["first", "shared", "drop"] = "first"
    """Equal shares: the answer of the earlier leaf wins (released code), every tied answer is right, or no
    group."""
    silent: Literal["wrong", "vote", "drop"] = "wrong"
    """Leaves without an answer: do not vote and are wrong; vote for "no answer" (ECHO's released code, where it
    can win); or are not trained on."""
    weigh: Literal["leaf", "fork"] = "leaf"
    """A vote per leaf, or one vote shared out evenly at each fork, so that branches of one wrong stem do not
    outvote independent leaves."""

    def build(self) -> Parts:
        """Gated forced forks, majority labels, entropy-confidence shaping of group credit."""
        check_group("echo", self.leaves)
        gauge = Gauge(
            Signal("entropy:top-normalised", self.entropy_top), Signal("confidence:mass", self.confidence_top)
        )
        for name in ("entropy", "confidence", "rise"):
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(
                    f"echo: {name}={getattr(self, name):g} is no share of its signal's largest value; give 0 to 1"
                )
        nats, mass = math.log(self.entropy_top), 1 / self.confidence_top
        entropy = self.entropy * nats
        gate = Gate(
            entropy, self.confidence * mass, self.rise * nats, most=self.most, low=entropy / 2, high=2 * entropy
        )
        doubt = (
            None if self.prune == "none"
            else Doubt(0.6 * mass, 0.85 * mass, 0.217 * nats, gauge=gauge, ending=self.prune)
        )  # fmt: skip
        return Parts(
            "echo",
            GatedForks(self.leaves, self.stems, gauge, gate, doubt, self.chunk, record=frozenset({"entropy"})),
            load_credit("entropy_confidence", base="grpo", a=self.shape, k=self.confidence_top),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=(MajorityVote(self.ties, self.silent, self.weigh),), optim={"minibatches": self.updates},
        )  # fmt: skip
