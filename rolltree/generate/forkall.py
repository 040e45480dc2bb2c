"""Fork everything, then keep what differs: the frontier of a tool tree, held at a width (TreePS-RAG, ReEx-SQL).

Every live path takes several turns at once; of the answers that come back, those most like a sibling's are pruned. The
tools have been paid by then, so pruning saves the turns below, not the look-up itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from rolltree.generate.choose import decide
from rolltree.generate.frontier import GrowthRound, grow_rounds
from rolltree.generate.hand import Hand
from rolltree.generate.signals import features
from rolltree.tree import Node, Tree

Alike = Callable[[Hand, Node, Node], float]
"""How alike the turns that ended in two nodes are, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class ForkAll:
    """Each live path goes on `ways` ways; then siblings that are alike are pruned until `width` paths live.

    Paths that have answered are never pruned, unless they answered just now and `exact` draws among them too; of the
    others never more live than leaves are missing, so `width` = `leaves` keeps as many as are missing. Without `exact`
    up to width·ways − 1 more leaves than asked for can end in the same round.
    """

    alike: Alike
    leaves: int = 16
    ways: int = 4
    width: int = 4
    same: float | None = None
    """Siblings at least so alike are merged (the later is pruned) even below the width; None = never."""
    by: Literal["likeness", "chance"] = "likeness"
    """"chance" prunes random paths instead: the control at an equal rate. A path that has a sibling left goes before
    one that has none, so that what came before is not lost."""
    exact: bool = False
    """What has just answered is a candidate like the others: with `by="chance"` no end is likelier for being short, and
    no more than `leaves` are left."""
    first: int = 0
    """Ways of the first step, from the prompt; 0 = `ways`."""
    want: frozenset[str] = frozenset()
    """Extras to record for the credit."""
    decides: bool = False
    """Whether the majority of the leaves becomes the tree's answer (`notes["answer"]`)."""

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, and an environment that answers."""
        return features(self.want) | {"turns"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Turn by turn until all have answered."""
        await grow_rounds(
            hand, leaves=self.leaves, first=self.first or self.ways, widths=self.widths, draw={}, want=self.want,
            review=None if self.exact else self.review, drawn=self.drawn if self.exact else None,
            why="every path goes on several ways",
        )  # fmt: skip
        if self.decides:
            decide(hand, [leaf for leaf in tree.leaves() if leaf.status == "done"], "vote")

    def widths(self, hand: Hand, round: GrowthRound) -> Sequence[int]:
        """The same for every path."""
        return [self.ways] * len(round.live)

    def drawn(self, hand: Hand, candidates: Sequence[Node], ended: int) -> None:
        """Keep as many of all candidates as leaves are missing."""
        kept, room = list(candidates), max(self.leaves - ended, 0)
        alike = {(a.id, b.id): self.alike(hand, a, b) for a, b in combinations(kept, 2)} if len(kept) > room else {}
        mates = {(a.id, b.id) for a, b in combinations(kept, 2) if came_from(hand.tree, a) is came_from(hand.tree, b)}
        while len(kept) > room:
            victim, numbers = self._victim(hand, kept, alike, mates)
            kept.remove(victim)
            hand.prune(victim, why=f"{room} of {len(candidates)} candidates are kept", **numbers)

    async def review(self, hand: Hand, live: Sequence[Node]) -> Sequence[Node]:
        """Prune to the width; pairs of siblings go before pairs of cousins, the later of a pair goes.

        Cousins that ask the same stand at different places, so that a path never ends for what another one asks while
        some path still has siblings: else all that live soon come from one.
        """
        kept = list(live)
        alike = {(a.id, b.id): self.alike(hand, a, b) for a, b in combinations(kept, 2)}
        mates = {(a.id, b.id) for a, b in combinations(kept, 2) if came_from(hand.tree, a) is came_from(hand.tree, b)}
        if self.same is not None:
            for first, second in combinations(live, 2):
                pair = (first.id, second.id)
                if first in kept and second in kept and pair in mates and alike[pair] >= self.same:
                    kept.remove(second)
                    hand.prune(second, why="the same as a sibling", alike=alike[pair], sibling=first.id)
        answered = sum(leaf.status == "done" for leaf in hand.tree.leaves() if leaf.parent is not None)
        room = min(self.width, max(self.leaves - answered, 0))
        while len(kept) > room:
            victim, numbers = self._victim(hand, kept, alike, mates)
            kept.remove(victim)
            why = "the leaves asked for have answered" if room == 0 else f"one of {self.width} paths may be like it"
            hand.prune(victim, why=why, **numbers)
        return kept

    def _victim(
        self, hand: Hand, kept: list[Node], alike: dict[tuple[int, int], float], mates: set[tuple[int, int]]
    ) -> tuple[Node, dict[str, float]]:
        if self.by == "chance":
            twins = {n for a, b in combinations(kept, 2) if (a.id, b.id) in mates for n in (a.id, b.id)}
            return max([n for n in kept if n.id in twins] or kept, key=lambda n: hand.rng_at(n, "prune").uniform()), {}
        if len(kept) == 1:
            return kept[0], {}
        first, second = max(
            combinations(kept, 2),
            key=lambda p: ((p[0].id, p[1].id) in mates, alike[p[0].id, p[1].id]),
        )
        return second, {"alike": alike[first.id, second.id], "sibling": first.id}


def came_from(tree: Tree, node: Node) -> Node:
    """Where the turn that ends in a node began: the environment's word before it, or the prompt."""
    path = tree.path(node)
    return next(n for n in reversed(path[:-1]) if n.role in ("env", "prompt"))


def like_look_ups(hand: Hand, a: Node, b: Node) -> float:
    """Overlap (Jaccard) of the words asked for; of the words found, where no words were asked for (reconstructed)."""
    asked = [_words(hand.turn(parent)) for n in (a, b) if (parent := hand.tree.parent(n)) is not None]
    if asked[0] or asked[1]:
        return overlap(asked[0], asked[1])
    return overlap(*(_words(hand.codec.decode(n.actions)) for n in (a, b)))


def like_results(hand: Hand, a: Node, b: Node) -> float:
    """1 where both calls worked and came back with the same, else 0."""
    worked = not (a.notes.get("failed") or b.notes.get("failed"))
    return float(worked and a.actions.tobytes() == b.actions.tobytes())


def overlap(a: set[str], b: set[str]) -> float:
    """Jaccard index; 1 for two empty sets."""
    return len(a & b) / len(a | b) if a | b else 1.0


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
