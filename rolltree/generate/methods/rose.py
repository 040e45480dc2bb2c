"""Places where the policy hesitates between different meanings, not between synonyms (ROSE, arXiv 2601.05053)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolltree.engine.protocol import Embedder
from rolltree.generate.hand import Hand
from rolltree.generate.signals import Floats, Signal, SignalError, divergence
from rolltree.generate.stems import Score
from rolltree.tree import Node
from rolltree.tree.node import FloatArray


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
