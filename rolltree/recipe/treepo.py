"""TreePO: heuristic tree-based policy optimisation (arXiv 2508.17445)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.filter.overlong import Overlong
from rolltree.generate.backfill import Backfill
from rolltree.generate.methods.treepo import SegmentTree, Split
from rolltree.generate.methods.treepo_repetition import EndRepeating
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group

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
