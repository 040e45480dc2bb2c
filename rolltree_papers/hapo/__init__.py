"""HAPO: heterogeneous adaptive policy optimisation (arXiv 2509.16591)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.entropy_shaping import shaped
from rolltree.credit.group import GRPO
from rolltree.credit.normalise import centred, scaled
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import load_credit, register, resolve
from rolltree.filter.groups import Mixed
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.signals import log_entropy
from rolltree.generate.turns import lacks_outcome, play
from rolltree.knobs.varying import Knob
from rolltree.objective.against import against
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Tree
from rolltree.tree.table import Floats, Table

# Token-level group average and entropy-guided redistribution.


@register("token_group", paper="HAPO, token-level group average (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class TokenGroup:
    """A_i = (r_i − mean)/(std + eps) with mean and population std over the group's trained actions (HAPO, TLGA).

    Long responses weigh more in the mean, so the sum over a group's actions is exactly 0 (use averaging "token"). A
    group with any |A| ≥ `fallback` uses leaf statistics (GRPO) instead.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    fallback: float = 5.0
    """Size of an advantage from which on a group uses statistics of leaves instead of tokens."""
    eps: float = 1e-6
    by: partition.By = "tree"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward = outcomes(table)
        weights = table.loss_tokens.astype(np.float64)
        group = partition.leaf_groups(table, self.by, table.live & (weights > 0))
        middle = centred(reward, group, "mean", "zero", weights)
        leaf = scaled(middle, reward, group, "std", ddof=0, eps=self.eps, weights=weights)
        usual = GRPO(by=self.by, ddof=0, eps=self.eps)(table).leaf
        extreme = np.bincount(
            group[(group >= 0) & (np.abs(leaf) >= self.fallback)], minlength=group.max(initial=-1) + 1
        )
        use_usual = partition.spread(extreme.astype(np.float64), group) > 0
        return Advantage(leaf=np.where(use_usual, usual if usual is not None else leaf, leaf))


def log_entropy_rank(table: Table, entropy: Floats, quantile: float = 0.8) -> Floats:
    """ĥ in [−1, 1]: log-entropy around its quantile over the step, each side over its own largest magnitude.

    The released code divides the negative side by a negative number, so it comes out positive; this is the intended
    form.
    """
    use = table.loss_mask & np.repeat(table.below(table.live.astype(np.float64)) > 0, table.length)
    out = np.zeros(len(entropy))
    if not use.any():
        return out
    away = log_entropy(entropy[use])
    away -= np.quantile(away, quantile)
    high, low = away.max(), -away.min()
    out[use] = away / np.where(away > 0, high if high > 0 else 1.0, low if low > 0 else 1.0)
    return out


@register("redistributed", paper="HAPO, advantage redistribution at ratio 1 (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class Redistributed:
    """A_t ← A_t (1 + β min(ĥ_t, 0)): low-entropy actions learn less (HAPO's redistribution where ratios are 1).

    ĥ is the normalised log-entropy. The other half of the rule, which strengthens high-entropy actions whose ratio
    has left the neutral band, reads ratios and belongs to an objective. β = 0 is the base.
    """

    base: Credit | str = "token_group"
    beta: float = 1.0
    """How much less actions of low entropy learn; 0 is the base credit."""
    quantile: float = 0.8
    """Quantile of the log-entropy above which nothing is taken away."""

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise CreditError(f"redistributed: beta {self.beta} must lie in [0, 1] so that signs survive")

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and entropies."""
        return resolve(self.base).needs | {"entropy"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, scaled."""
        rank = log_entropy_rank(table, action_values(table, "entropy"), self.quantile)
        return shaped(resolve(self.base)(table), 1 + self.beta * np.minimum(rank, 0.0))


# A temperature for every token: uncertain ones are drawn hotter, certain ones colder (HAPO, arXiv 2509.16591).


@dataclass(frozen=True, slots=True)
class ByEntropy:
    """A sampler's hook: T = 1 + τ ĥ, with ĥ ∈ [−1, 1] the log-entropy of the token's distribution around a pivot, each
    side over its own reach. On top of the run's own temperature.
    """

    tau: float
    pivot: float
    top: float
    bottom: float

    def __call__(self, generated: Sequence[int], logits: Any) -> Any:
        """The logits at their own temperature."""
        x = np.asarray(logits, np.float64)
        logp = x - np.logaddexp.reduce(x)
        p = np.exp(logp)
        entropy = -(p * np.where(p > 0, logp, 0.0)).sum()
        away = float(log_entropy(entropy)) - self.pivot
        h = away / (self.top if away > 0 else self.bottom)
        return logits / (1 + self.tau * min(max(h, -1.0), 1.0))


@dataclass(frozen=True, slots=True)
class Tempered:
    """`n` independent rollouts with a temperature per token; at the policy's own distribution while no scale is known.

    The scale is that of log-entropies seen before: their pivot, the most and the least of them. `sampling_logprob` is
    the tempered distribution: objectives should take their ratio against it.
    """

    n: int = 8
    tau: float = 0.05
    pivot: float | None = None
    most: float = 0.0
    least: float = 0.0
    want: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset({"entropy:full", "hook"})

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All at once."""
        want, hook = self.want | {"entropy"}, self.hook
        if hook is not None:
            told = {"pivot": hook.pivot, "top": hook.top, "bottom": hook.bottom}
            hand.event("note", None, "drawn hotter where uncertain, colder where certain", tau=self.tau, **told)
        missing = max(self.n - len(tree.children(tree.root)), 0)
        async with asyncio.TaskGroup() as group:
            for _ in range(int(min(missing, hand.budget.remaining("leaves")))):
                group.create_task(play(hand, tree.root, want=want, hook=hook))
        for leaf in tree.leaves():
            if lacks_outcome(leaf):
                await hand.verify(leaf)

    @property
    def hook(self) -> ByEntropy | None:
        """What tempers every token; None while nothing is known."""
        if self.pivot is None:
            return None
        return ByEntropy(self.tau, self.pivot, self.most - self.pivot or 1.0, self.pivot - self.least or 1.0)


@dataclass(frozen=True, slots=True)
class Hapo:
    """Every action is treated by its entropy: how far it may move, and how much it is credited.

    Uncertain actions may rise further, certain ones fall further; certain ones learn less while their ratio is near 1.
    The group's mean runs over tokens, so that a group's credit sums to zero. Rollouts are drawn hotter where they are
    uncertain and colder where they are certain, by up to `tau`, on the scale of the last step's log-entropies
    (`policy/log_entropy_pivot`, their 0.8-quantile, and their ends); the first step is drawn as it is. Ratios are
    against the distribution that sampled. Released code gives the normalised entropy one sign only, so certain actions
    are treated as uncertain ones; here it has both.
    """

    card: ClassVar[Card] = Card(
        "hapo", "Heterogeneous adaptive policy optimisation", "2509.16591", 2025,
        "above DAPO on AIME and others for Qwen2.5-Math-1.5B, -7B and Qwen3-8B, with higher entropy",
        ("filter", "credit", "objective"), "dapo",
        Evidence("pass@1", "dapo", least=0.04, task="regime:fresh", seeds=6, settings=("dapo:overlong=False",)),
        counter=Counter("policy/entropy_scaled"),
    )  # fmt: skip
    group: int = 8
    clip_low: float = 0.2
    clip_high: float = 0.2
    alpha: float = 1.0
    """How far the clip bounds widen with an action's normalised log-entropy."""
    beta: float = 1.0
    """How far the credit of an action falls or rises with its normalised log-entropy."""
    dual: float = 10.0
    tau: float = 0.05
    """How far the sampler's temperature follows the entropy; 0 = not at all."""
    pivot: Knob | None = "last policy/log_entropy_pivot or none"
    """Log-entropy at which actions are drawn at temperature 1."""
    most: Knob = "last policy/log_entropy_most or 0"
    """Log-entropy at which the temperature is 1 + `tau`."""
    least: Knob = "last policy/log_entropy_least or 0"
    """Log-entropy at which the temperature is 1 − `tau`."""
    updates: int = 4
    rounds: int = 4

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, mixed groups, token-level group credit, entropy-dependent clip, several updates."""
        check_group("hapo", self.group)
        pivot = None if self.pivot is None else float(self.pivot)
        tempered = Tempered(self.group, self.tau, pivot, float(self.most), float(self.least))
        return Parts(
            "hapo", tempered if self.tau else Independent(self.group), load_credit("token_group"),
            load_objective(
                "hapo", clip_low=self.clip_low, clip_high=self.clip_high, alpha=self.alpha, beta=self.beta,
                dual=self.dual, correction=against("sampled" if self.tau else "old"),
            ),
            averaging="token", filters=(Mixed(),), rounds=self.rounds, optim={"minibatches": self.updates},
        )  # fmt: skip
