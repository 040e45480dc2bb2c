"""Forks after tool answers, likelier where the policy became less certain (ARPO, AEPO).

A path's uncertainty in a turn is read over the first tokens of the turn; its reference is the first turn on the same
path. Released code keeps that reference in a table keyed by a running index that is never reset; here it is read off
the path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rolltree.generate.backfill import Backfill, backfill
from rolltree.generate.frontier import GrowthRound, grow_rounds
from rolltree.generate.hand import Hand
from rolltree.generate.signals import Signal, asked, features, head_sum
from rolltree.generate.stems import Score
from rolltree.tree import Node, Tree

# A branching rule of one's own: one function of a node, usable wherever trees choose their forks.


@dataclass(frozen=True, slots=True)
class Rule:
    """A score per action of a node, and the extras it reads. Make one with `rule`.

    Between stems it says which place on any path to fork before (`OneAtATime`, `TwoWaves`); round by round it gives
    the free places to the live paths whose last run scored highest on average (`SegmentTree`, `TurnForks`).
    """

    function: Score
    want: frozenset[str] = frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """The engine's features behind the extras."""
        return features(self.want)

    async def on(self, hand: Hand) -> Score:
        """The function itself."""
        return self.function

    def __call__(self, hand: Hand, round: GrowthRound) -> Sequence[int]:
        """One way on for every live path, and one more for the best while places are free."""
        last = [next(n for n in reversed(hand.tree.path(end)) if n.role == "policy") for end in round.live]
        scores = [float(self.function(node).mean()) if len(node) else 0.0 for node in last]
        free = max(round.leaves - round.finished - len(round.live), 0)
        best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:free]
        for i in best:
            hand.event("select", round.live[i], "among the highest scores of this round", score=scores[i])
        return [1 + (i in best) for i in range(len(scores))]


def rule(*want: str) -> Callable[[Score], Rule]:
    """Decorator: make a branching rule of a function from a node to a number per action.

    `want` names the extras that the function reads: "entropy", "top:5".
    """
    return lambda function: Rule(function, frozenset(want))


@dataclass(frozen=True, slots=True)
class TurnForks:
    """ARPO's generator (arXiv 2507.19849): P(fork) = clip(base + slope·(H − H₀)), one extra branch a turn.

    With `penalty` > 0 it is AEPO's (arXiv 2510.14545): the odds shrink by (1 − penalty·l), l = rounds in a row in which
    this prompt forked. Released code shrinks its random number instead, so that nothing forks from l = 10 on, where the
    formula still gives half the odds. It also adds one root rollout a round where no path is live, which may fork like
    the others; here what is missing is restarted at once and does not fork.
    """

    leaves: int = 16
    """M: leaves per prompt."""
    first: int = 8
    """N: rollouts started at the root."""
    base: float = 0.5
    slope: float = 0.2
    penalty: float = 0.0
    signal: Signal = field(default_factory=lambda: Signal("entropy:top", 10))
    window: int = 20
    """Tokens at the head of a turn that are read; their sum is divided by ln V, as in the paper's code."""
    fill: Backfill = "restart"
    reference: float | None = None
    """A fixed H₀ for all paths; None = each path's first turn. Released code keeps H₀ in a table keyed by a running
    index and never resets it, so from the second batch on it is a number that has nothing to do with the path."""
    rule: Rule | None = None
    """A rule of one's own instead of the signal's odds."""
    record: frozenset[str] = frozenset()
    """Extras to record for the credit, besides the signal's: "entropy", "top:5"."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return asked(self.signal.want if self.rule is None else self.rule.want, self.record)

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, and an environment that answers."""
        return features(self.want) | {"turns"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow turn by turn, then restart from the root for what is missing."""
        rule = self.rule or _Odds(self)
        await grow_rounds(
            hand, leaves=self.leaves, first=self.first, widths=rule, draw={}, want=self.want,
            why="uncertainty after the answer",
        )  # fmt: skip
        await backfill(hand, self.fill, self.leaves, want=self.want)


class _Odds:
    """Counts the rounds in a row in which this prompt forked: AEPO's l."""

    def __init__(self, knobs: TurnForks) -> None:
        self.knobs = knobs
        self.consecutive = 0

    def __call__(self, hand: Hand, round: GrowthRound) -> Sequence[int]:
        k = self.knobs
        slots = round.leaves - round.finished - len(round.live)
        widths: list[int] = []
        for node in round.live:
            now, reference = self._uncertainty(hand, node)
            chance = min(1.0, max(0.0, k.base + k.slope * (now - reference)))
            chance *= max(0.0, 1.0 - k.penalty * self.consecutive)
            forks = slots > 0 and hand.rng_at(node, "fork").uniform() < chance
            slots -= forks
            widths.append(1 + forks)
            if forks:
                why = f"{k.signal.kind} {now:.3f} against {reference:.3f} at first: fork with P = {chance:.2f}"
                hand.event(
                    "select", node, why, now=now, reference=reference, chance=chance, consecutive=self.consecutive
                )
        self.consecutive = self.consecutive + 1 if any(w > 1 for w in widths) else 0
        return widths

    def _uncertainty(self, hand: Hand, node: Node) -> tuple[float, float]:
        turns = [n for n in hand.tree.path(node) if n.role == "policy" and len(n)]
        scale = math.log(hand.codec.vocab_size)
        read = [head_sum(self.knobs.signal.read(n), self.knobs.window) / scale for n in (turns[-1], turns[0])]
        fixed = self.knobs.reference
        return read[0], read[1] if fixed is None else fixed
