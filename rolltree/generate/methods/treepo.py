"""Segment trees: live paths decode a segment, and the fork rights of finished paths pass to the live ones (TreePO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rolltree.generate.backfill import Backfill, backfill
from rolltree.generate.frontier import GrowthRound, grow_rounds
from rolltree.generate.hand import Hand
from rolltree.generate.methods.treepo_repetition import EndRepeating
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.rules import Rule
from rolltree.generate.signals import asked, features, mean_logp
from rolltree.tree import Tree

Split = Literal["even", "likely", "unlikely"]


@dataclass(frozen=True, slots=True)
class SegmentTree:
    """TreePO's generator (arXiv 2508.17445, its depth-synchronous loop).

    After each segment a prompt may fork B = max(live, min(N − finished, d·ended now + d·live)) ways, split over the
    live paths evenly, or by a softmax of ± the mean log-prob of their last segment.
    """

    leaves: int = 8
    """N: leaves per prompt."""
    segment: int = 16
    """Tokens per segment (the paper's 512 at a 7k response); 0 = whole turns, between which an environment answers."""
    ways: int = 2
    """d: branches at the root and fork rights per path."""
    split: Split = "even"
    temperature: float = 1.0
    """Of the softmax in the two log-prob splits."""
    fill: Backfill = "boundary"
    rounds: int = 14
    """Most segments on a path."""
    first: tuple[int, int] | None = None
    """Branches at the root, drawn uniformly between the two ("init 2 to 8"); None = `ways`."""
    ending: EndRepeating | None = None
    """Ends paths that repeat themselves."""
    rule: Rule | None = None
    """A rule of one's own instead of `split`: who gets the fork rights."""
    record: frozenset[str] = frozenset()
    """Extras to record for the credit."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return asked(self.record, self.rule.want if self.rule is not None else ())

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded."""
        return features(self.want)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow by segments, then fill what is missing."""
        low, high = self.first or (self.ways, self.ways)
        first = int(hand.rng.child("first").generator().integers(low, high + 1))
        draw: SamplingOptions = {"max_tokens": self.segment} if self.segment else {}
        await grow_rounds(
            hand, leaves=self.leaves, first=first, widths=self.rule or self.widths, draw=draw, rounds=self.rounds,
            want=self.want, review=self.ending, why="fork rights of the segment",
        )  # fmt: skip
        await backfill(hand, self.fill, self.leaves, ways=self.ways, want=self.want)

    def widths(self, hand: Hand, round: GrowthRound) -> Sequence[int]:
        """The fork budget of this round over the live paths."""
        live = len(round.live)
        budget = max(live, min(round.leaves - round.finished, self.ways * round.ended_now + self.ways * live))
        if self.split == "even":
            share, rest = divmod(budget, live)
            return [share + (i == live - 1) * rest for i in range(live)]
        sign = 1.0 if self.split == "likely" else -1.0
        score = np.array([sign * mean_logp(hand.tree.path(n)) for n in round.live]) / self.temperature
        return _rounded(np.exp(score - score.max()), budget)


def _rounded(weights: np.ndarray[tuple[int], np.dtype[np.float64]], total: int) -> list[int]:
    """Integers in proportion to weights that sum to total (largest remainder); at least one each."""
    spare = total - len(weights)
    exact = weights / weights.sum() * spare
    base = np.floor(exact).astype(int)
    order = np.argsort(-(exact - base), kind="stable")[: spare - int(base.sum())]
    base[order] += 1
    return [int(b) + 1 for b in base]
