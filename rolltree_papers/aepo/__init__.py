"""AEPO: agentic entropy-balanced policy optimisation (arXiv 2510.14545)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.backfill import Backfill
from rolltree.generate.hand import Hand
from rolltree.generate.signals import Signal, head_sum
from rolltree.generate.turnforks import TurnForks
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Tree

# How many rollouts start at the root and how many branch later: AEPO's split of the leaves by uncertainty.
#
# A prompt that is uncertain at its root deserves more rollouts from there; one that becomes uncertain after its tool
# answers deserves more branches.


@dataclass(frozen=True, slots=True)
class Balanced:
    """AEPO's pre-monitoring (arXiv 2510.14545): m of k leaves start at the root, m as of `starts`.

    One whole rollout is played first and its turns are read as the inner strategy reads them: a sum over the first
    `window` tokens of a turn, over ln V. H_root is that of the first turn, H̄_tool the mean of all turns, the first
    included. Released code throws this rollout away; here it is the first of the m.
    """

    inner: TurnForks = field(default_factory=lambda: TurnForks(penalty=0.05))
    beta: float = 0.5
    keep: bool = True
    """Whether the probe is a leaf like the others; released code pays for it and throws it away."""

    @property
    def want(self) -> frozenset[str]:
        """The inner strategy's."""
        return self.inner.want

    @property
    def needs(self) -> frozenset[str]:
        """The inner strategy's."""
        return self.inner.needs

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Probe, split, and let the inner strategy grow the rest."""
        probe = await play(hand, tree.root, want=self.want)
        if probe is tree.root:
            return
        turns = [n for n in tree.path(probe) if n.role == "policy" and len(n)]
        heads = [head_sum(self.inner.signal.read(turn), self.inner.window) for turn in turns] or [0.0]
        root, tools = heads[0] / math.log(hand.codec.vocab_size), mean(heads) / math.log(hand.codec.vocab_size)
        total = starts(self.inner.leaves, self.beta * (root - tools))
        why = f"{total} of {self.inner.leaves} leaves start at the root"
        hand.event("allocate", tree.root, why, starts=total, at_root=root, at_tools=tools)
        if not self.keep:
            hand.prune(tree.path(probe)[1], why="the probe is thrown away")
        # One more rollout at least, so that there is something to branch from.
        await replace(self.inner, first=max(1, total - self.keep)).grow_tree(tree, hand)


def starts(leaves: int, gap: float) -> int:
    """AEPO's m = min(k, ⌊k·σ(gap)⌋ + 1) for k leaves and the gap β(H_root − H̄_tool)."""
    return min(leaves, math.floor(leaves / (1 + math.exp(-gap))) + 1)


@dataclass(frozen=True, slots=True)
class Aepo:
    """ARPO held in balance: forking again and again gets less likely, and uncertain tokens keep their gradient.

    The odds of a fork shrink by `penalty` per round in a row in which the prompt forked. `balance` lets one rollout
    decide how many leaves start at the root (off in the public scripts). Advantages grow with a token's entropy, and
    beyond the upper clip bound the gradient is kept at its value there instead of cut. Where no path is
    live and leaves are missing, they all start at the root at once and do not fork, as in `arpo`; released code starts
    one a round, which may fork.
    """

    card: ClassVar[Card] = Card(
        "aepo", "Agentic entropy-balanced policy optimisation", "2510.14545", 2025,
        "better than seven RL algorithms on 14 sets of web agents' tasks (Qwen3-14B, 1,000 samples)",
        ("generate", "control", "credit", "objective"), "arpo",
        Evidence("pass@1", "arpo", least=0.04, task="regime:noisy", seeds=6, settings=("leaves=8", "first=4")),
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    leaves: int = 16
    first: int = 8
    """N: rollouts started at the root."""
    base: float = 0.5
    slope: float = 0.2
    """How much the odds of a fork rise with the rise in uncertainty after an answer."""
    penalty: float = 0.05
    """How much the odds of a fork shrink with each round in a row in which the prompt forked."""
    balance: bool = True
    """Whether one rollout first decides how many leaves start at the root."""
    beta: float = 0.5
    """How steeply the number of leaves at the root follows from that rollout's uncertainty."""
    keep_probe: bool = True
    """Whether the probing rollout is the first leaf; released code throws it away."""
    top: int = 10
    """Likeliest alternatives whose entropy is read."""
    window: int = 20
    """Tokens at the head of a turn that are read; their sum is divided by ln V, as in the paper's code."""
    reference: float | None = None
    """A fixed H₀; None = each path's first turn. A stale one is what the released table comes to."""
    fill: Backfill = "restart"
    """Where leaves come from that no fork has made."""
    scale: float = 0.2
    """a of A_t(1 + a z(H_t))."""
    updates: int = 4
    """Updates of a step; with one the clip never acts. How many the paper makes was not found."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual: float = 10.0
    """Bound of the dual clip, whose value is not given (10 is reconstructed from the code's base)."""

    def build(self) -> Parts:
        """Penalised forks after answers, entropy-scaled group credit, the gradient-keeping clip."""
        check_group("aepo", self.leaves)
        forks = TurnForks(
            self.leaves, self.first, self.base, self.slope, self.penalty, Signal("entropy:top", self.top), self.window,
            fill=self.fill, reference=self.reference, record=frozenset({"entropy"}),
        )  # fmt: skip
        return Parts(
            "aepo", Balanced(forks, self.beta, keep=self.keep_probe) if self.balance else forks,
            load_credit("entropy_scaled", base="grpo", a=self.scale),
            load_objective("aepo", clip_low=self.clip_low, clip_high=self.clip_high, dual=self.dual),
            averaging="sequence", optim={"minibatches": self.updates},
        )  # fmt: skip
