"""TreePO: heuristic tree-based policy optimisation (arXiv 2508.17445)."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.filter.lengths import Overlong
from rolltree.generate.backfill import Backfill, backfill
from rolltree.generate.frontier import GrowthRound, grow_rounds
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.signals import asked, features, mean_logp
from rolltree.generate.turnforks import Rule
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Node, Tree

# Paths that have begun to repeat themselves: the first of TreePO's finish tests.


def repeats(text: str, window: int, times: int) -> bool:
    """Whether some run of `window` characters stands in the text at least `times` times, overlaps included."""
    seen = collections.Counter(text[i : i + window] for i in range(len(text) - window + 1))
    return max(seen.values(), default=0) >= times


@dataclass(frozen=True, slots=True)
class EndRepeating:
    """Ends live paths whose last run repeats itself (TreePO, arXiv 2508.17445); they are verified as they stand.

    The paper's window is 32 characters, seen 8 times in a segment of 512 tokens.
    """

    window: int = 32
    times: int = 8

    @classmethod
    def of_segment(cls, tokens: int) -> EndRepeating:
        """The paper's rule at its 512 tokens; in shorter segments one that two characters in turn can still meet, if
        they fill a segment of one character a token (reconstructed)."""
        window = min(max(tokens // 4, 2), 32)
        return cls(window, max(min((tokens - window) // 2 + 1, 8), 2))

    async def __call__(self, hand: Hand, live: Sequence[Node]) -> Sequence[Node]:
        """Close what repeats and return the others."""
        kept: list[Node] = []
        for node in live:
            if node.role == "policy" and repeats(hand.codec.decode(node.actions), self.window, self.times):
                hand.close(node, "repetition", f"{self.window} characters stand {self.times} times in one segment")
                await hand.verify(node)
            else:
                kept.append(node)
        return kept


# Segment trees: live paths decode a segment, and the fork rights of finished paths pass to the live ones (TreePO).

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


PAPER_SEGMENT = 512
"""Tokens."""


@dataclass(frozen=True, slots=True)
class TreePo:
    """Paths decode segment by segment and fork where a segment ends; prefixes are paid once.

    Each leaf is compared with all leaves and with those that share more and more of its prefix; the result is whitened
    over the step. Around it stands DAPO: asymmetric clip, token averaging, mixed groups only, overlong penalty (over
    the last fifth of the limit, as DAPO's; TreePO's own buffer is 512 of 7,168 tokens). The paper's segment is 512 of
    7,168 tokens; `segment` is in tokens. The split's temperature may vary over the run, as the code's half-sine does
    (`split_temperature="0.5->10 over 200"`). Paths ended by repetition have that finish. Released code cuts a finished
    leaf back without telling the request, so a deep fallback glues tokens onto another prefix; here the prefix is
    always the node's.
    """

    card: ClassVar[Card] = Card(
        "treepo", "TreePO", "2508.17445", 2025,
        "22 to 43 % of the GPU hours of training are saved at equal or better accuracy (Qwen2.5-7B, mathematics)",
        ("generate", "control", "filter", "credit"), "dapo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6,
                 settings=("treepo:leaves=8", "treepo:segment=8")),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    leaves: int = 16
    segment: int = 16
    """Tokens per segment (the paper's 512 at a 7k response); 0 = whole turns: forks at an agent's calls alone."""
    ways: int = 2
    split: Split = "even"
    """How branches are shared among paths at the end of a segment."""
    split_temperature: float = 1.0
    """Of the softmax in the splits by log-prob."""
    first: int = 0
    """Least branches at the root; 0 = `ways`."""
    first_most: int = 0
    """Most branches at the root, drawn uniformly from `first` on (8 in the paper's "init 2 to 8")."""
    fill: Backfill = "boundary"
    """Where leaves come from that no fork has made."""
    rounds: int = 14
    repeat: bool = True
    """A segment that repeats itself ends its path: 32 characters that stand 8 times in the paper's 512 tokens."""
    repeat_window: int = 0
    """Another window of characters; 0 = by the segment's length, so that a repetition can happen."""
    repeat_times: int = 0
    """Another number of times that it stands; 0 = by the segment's length."""
    subgroups: str = "average"
    """How nested subgroups are averaged: "average" or "size"."""
    whiten: bool = True
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual: float = 10.0
    sampling_rounds: int = 3
    overlong: bool = True

    def build(self) -> Parts:
        """A segment tree, nested credit, asymmetric dual clip, DAPO's filter and shaper."""
        check_group("treepo", self.leaves)
        low = self.first or self.ways
        fit = EndRepeating.of_segment(self.segment or PAPER_SEGMENT)
        ending = EndRepeating(self.repeat_window or fit.window, self.repeat_times or fit.times)
        return Parts(
            "treepo",
            SegmentTree(
                self.leaves, self.segment, self.ways, self.split, self.split_temperature, fill=self.fill,
                rounds=self.rounds, first=(low, max(low, self.first_most)), ending=ending if self.repeat else None,
            ),
            load_credit("nested", mix=self.subgroups, whiten=self.whiten),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high, dual=self.dual),
            averaging="token", filters=(Mixed(),), shapers=(Overlong(),) if self.overlong else (),
            rounds=self.sampling_rounds,
        )  # fmt: skip
