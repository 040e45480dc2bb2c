"""A branching rule of one's own: one function of a node, usable wherever trees choose their forks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rolltree.generate.frontier import GrowthRound
from rolltree.generate.hand import Hand
from rolltree.generate.signals import features
from rolltree.generate.stems import Score


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
