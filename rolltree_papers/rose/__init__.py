"""ROSE: reinforced efficient reasoning via semantically diverse exploration (arXiv 2601.05053)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import load_credit, register, resolve
from rolltree.engine.protocol import Embedder
from rolltree.filter.groups import Mixed
from rolltree.generate.hand import Hand
from rolltree.generate.signals import Signal, SignalError, divergence
from rolltree.generate.stems import BySignal, OneAtATime, Score
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.tree import Node
from rolltree.tree.node import FloatArray
from rolltree.tree.table import Bools, Floats, Table

# Right answers that are longer than needed earn less for what made them longer.

RIGHT = 1.0 - 1e-9
"""An outcome from here on is a right answer."""


@register("length_calibrated", paper="ROSE, arXiv:2601.05053, length calibration", family="shaping")
@dataclass(frozen=True, slots=True)
class LengthCalibrated:
    """A ← A − |A|·(1 − ((|s| − b)/(|c| − b))^α) for a right leaf c behind b, where it leaves the shortest right one s.

    Lengths are trained actions and b counts those before the fork (ROSE, arXiv:2601.05053). Signs survive. A run
    shared by several leaves takes the mean of their factors, which is what training each leaf's own copy comes to
    where leaves weigh alike (averaging "fixed", ROSE's). The base must give one advantage per run, as node credits do.
    """

    base: Credit | str = "node_delta"
    alpha: float = 1.0
    """Exponent of the ratio of lengths: larger ones take more from long right answers."""

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise CreditError(f"length_calibrated: alpha {self.alpha} must be above 0; leave the calibration out for 0")

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, less on what made right answers longer."""
        before = resolve(self.base)(table)
        if before.node is None or before.leaf is not None or before.action is not None or before.factor is not None:
            raise CreditError(f"length_calibrated: the base {self.base!r} is not one advantage per run; try node_delta")
        excess, shortest = surplus(table, self.alpha)
        live = table.live.astype(np.float64)
        mean = table.below(excess * live) / np.maximum(table.below(live), 1.0)
        return replace(before, node=before.node - np.abs(before.node) * np.where(shortest, 0.0, mean))


def surplus(table: Table, alpha: float) -> tuple[Floats, Bools]:
    """Per leaf 1 − ((|s| − b)/(|c| − b))^α, 0 unless it is right; and which nodes are on their tree's shortest path."""
    right = table.live & (outcomes(table) >= RIGHT)
    taught = np.add.reduceat(np.append(table.loss_mask, False).astype(np.int64), table.start)
    upto = table.down(np.where(table.length > 0, taught, 0))
    length = np.where(right, table.loss_tokens, np.iinfo(np.int64).max)
    shortest = np.zeros(len(table.nodes), np.bool_)
    goal = np.zeros(len(table.trees))
    for tree in np.unique(table.leaf_tree[right]):
        mine = np.flatnonzero(table.leaf_tree == tree)
        row = int(table.leaf[mine[length[mine].argmin()]])
        goal[tree] = upto[row]
        while row >= 0:
            shortest[row] = True
            row = int(table.parent[row])
    fork = np.where(shortest, upto, 0.0)
    for rows in table.levels[1:]:
        fork[rows] = np.where(shortest[rows], upto[rows], fork[table.parent[rows]])
    b, own = fork[table.leaf], upto[table.leaf]
    longer = right & (own > b)
    part = np.divide(goal[table.leaf_tree] - b, own - b, out=np.ones(len(b)), where=longer)
    return np.where(longer, 1.0 - np.clip(part, 0.0, 1.0) ** alpha, 0.0), shortest


# Places where the policy hesitates between different meanings, not between synonyms (ROSE, arXiv 2601.05053).


@dataclass(frozen=True, slots=True)
class MeaningfulDoubt:
    """Score of a place: entropy of the top k × how far its alternatives lie apart in the embedding table.

    H = −Σ p ln p over the top k (raw); the distance is 1 − Σ_ij p_i p_j cos(e_i, e_j), renormalised over them: 0 for
    synonyms. `literal` is the published form −Σ_{i≠j} p_i p_j cos(e_i, e_j), not renormalised. Where cosines are
    positive it is never above 0, so that its largest value sits where the policy is certain.
    """

    k: int = 20
    literal: bool = False

    @property
    def want(self) -> frozenset[str]:
        """The alternatives."""
        return self._signal.want

    @property
    def needs(self) -> frozenset[str]:
        """The alternatives and the embedding table."""
        return self._signal.needs | {"embeddings"}

    @property
    def _signal(self) -> Signal:
        return Signal("entropy:top", self.k)

    async def on(self, hand: Hand) -> Score:
        """The score under the engine's present weights."""
        if not isinstance(hand.engine, Embedder):
            raise SignalError(f"{type(hand.engine).__name__} shows no embeddings; score by entropy alone (BySignal)")
        table = await hand.engine.embeddings()
        return lambda node: self.score(node, table)

    def score(self, node: Node, table: FloatArray) -> Floats:
        """The score at each action of a node."""
        entropy = self._signal.read(node)
        assert node.top is not None
        logp, ids = node.top.logp[:, : self.k], node.top.ids[:, : self.k]
        return entropy * (literal_divergence(logp, ids, table) if self.literal else divergence(logp, ids, table))


def literal_divergence(logp: FloatArray, ids: NDArray[np.int32], table: FloatArray) -> Floats:
    """−Σ_{i≠j} p_i p_j cos(e_i, e_j) = −(‖Σ p_i e_i‖² − Σ p_i²) over unit vectors, as ROSE's code has it."""
    p = np.exp(logp.astype(np.float64))
    vectors = table[ids].astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return (p**2).sum(1) - ((p[..., None] * vectors).sum(1) ** 2).sum(-1)


@dataclass(frozen=True, slots=True)
class Rose:
    """Rollouts one after another; each forks the place of all earlier ones where meanings diverge most, or restarts.

    The score is entropy × semantic divergence of the top 20 alternatives. `form="literal"` has the published sign, by
    which certain tokens score highest wherever cosines are positive; `form="entropy"` leaves divergence out. Credit is
    V(node) − V(parent) without a deviation. Values belong to prefixes here; released code keys them by position and so
    merges different prefixes of one length. `calibrate` is the exponent of the calibration by length, which the paper
    varies from 0.5 to 3 and its released example leaves off; the paper's KL weight of 1e-3 is `kl`, off by default.
    """

    card: ClassVar[Card] = Card(
        "rose", "Semantically diverse exploration", "2601.05053", 2026,
        "pass@8 averages from 49.64 (GRPO) to 55.75 (Qwen3-8B) and from 28.35 to 31.67 (Llama-3.2-3B)",
        ("generate", "control", "credit"), "dr_grpo",
        Evidence("pass@1", "dr_grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    leaves: int = 8
    restart: float = 0.5
    """ε: chance of a fresh rollout from the root instead of a fork."""
    form: Literal["kept", "literal", "entropy"] = "kept"
    """The score of a place: as kept here, with the published sign (literal), or without divergence (entropy)."""
    top: int = 20
    """Likeliest alternatives that are compared."""
    consume: bool = True
    """Whether a place forks only once; released code reuses it until a better one appears."""
    backup: Literal["leaf_mean", "child_mean"] = "leaf_mean"
    values: Literal["prefix", "position"] = "prefix"
    """What a value belongs to; "position" merges different prefixes of one length, as released."""
    calibrate: float | None = None
    """Exponent of the calibration by length; none when left out."""
    clip: float = 0.2
    kl: float = 0.0
    sampling_rounds: int = 1

    def build(self) -> Parts:
        """Sequential forks by the score, node-delta credit, Dr. GRPO's fixed averaging, mixed groups only."""
        check_group("rose", self.leaves)
        if self.form not in ("kept", "literal", "entropy"):
            raise RecipeError(f"rose: form={self.form!r} is none of kept, literal, entropy")
        scorer = (
            BySignal(Signal("entropy:top", self.top)) if self.form == "entropy"
            else MeaningfulDoubt(self.top, literal=self.form == "literal")
        )  # fmt: skip
        credit = load_credit("node_delta", backup=self.backup, by=self.values)
        if self.calibrate is not None:
            credit = load_credit("length_calibrated", base=credit, alpha=self.calibrate)
        return Parts(
            "rose", OneAtATime(self.leaves, scorer, self.restart, self.consume),
            credit,
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="fixed",
            filters=(Mixed(),), rounds=self.sampling_rounds,
        )  # fmt: skip
