"""ARPO: agentic reinforced policy optimisation (arXiv 2507.19849)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.credit.shared_mean import SharedMean
from rolltree.generate.backfill import Backfill
from rolltree.generate.signals import Signal
from rolltree.generate.turnforks import TurnForks
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Arpo:
    """Part of the rollouts start at the root; the others branch off after tool answers that raised the uncertainty.

    The sum of −p ln p over the ten likeliest alternatives of a turn's first twenty tokens, over ln V, is compared with
    the path's first turn: a fork has the odds clip(base + slope·ΔH). "soft" credit leaves every leaf its own advantage,
    "hard" gives shared tokens the mean of theirs. The reward's bonus for using two kinds of tools belongs to tasks
    that have them and is left out; the task's own score is used. Where no path is live and leaves are missing,
    released code starts one fresh rollout a round at the root, which may fork; here all of them start at once and do
    not fork.
    """

    card: ClassVar[Card] = Card(
        "arpo", "Agentic reinforced policy optimisation", "2507.19849", 2025,
        "better than GRPO on 13 benchmarks of tool use at half the tool calls",
        ("generate", "control", "credit"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:noisy", seeds=6,
                 settings=("arpo:leaves=8", "arpo:first=4")),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    leaves: int = 16
    first: int = 8
    """N: rollouts started at the root."""
    base: float = 0.5
    slope: float = 0.2
    """How much the odds of a fork rise with the rise in uncertainty after an answer."""
    top: int = 10
    """Likeliest alternatives whose entropy is read."""
    window: int = 20
    """Tokens at the head of a turn that are read; their sum is divided by ln V, as in the paper's code."""
    reference: float | None = None
    """A fixed H₀; None = each path's first turn. A stale one is what the released table comes to."""
    fill: Backfill = "restart"
    """Where leaves come from that no fork has made."""
    credit: Literal["soft", "hard"] = "soft"
    """"soft" leaves every leaf its own advantage, "hard" gives shared tokens the mean of theirs."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Forks after answers, group credit (soft) or its mean on shared tokens (hard), clipped surrogate."""
        check_group("arpo", self.leaves)
        forks = TurnForks(
            self.leaves,
            self.first,
            self.base,
            self.slope,
            signal=Signal("entropy:top", self.top),
            window=self.window,
            fill=self.fill,
            reference=self.reference,
        )
        return Parts(
            "arpo", forks, load_credit("grpo") if self.credit == "soft" else SharedMean("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
        )  # fmt: skip
