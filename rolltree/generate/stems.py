"""Stems and branches: whole rollouts first, then branches from chosen places inside them.

In two waves (ETTRL, ECHO) all stems finish before any branch is chosen; one by one (ROSE) every new rollout may fork
any earlier one. A place is (leaf, position on its path): a leaf keeps its identity when nodes above it are cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.signals import Signal, asked, features
from rolltree.generate.turns import Watch, play
from rolltree.tree import Birth, Node, Tree

# The token that was not drawn: forced forks as LATR and ECHO make them.


async def alternative(
    hand: Hand, leaf: Node, position: int, token: int, *, why: str, numbers: Mapping[str, Any] | None = None
) -> Node | None:
    """Force `token` where a leaf's path has another one, after `position` actions; None = no leaf is in the budget.

    The forced run carries the policy's log-prob, and entropy and alternatives of the place, where the path has them.
    A token that ends a text or a turn ends it here too, so the run is `done`, or open for the environment.
    """
    head = hand.place(leaf, position)
    forced = await hand.force(head, [token], role="policy", why=why, numbers=numbers)
    if forced is None or forced.status != "open":
        return forced
    path = hand.tree.path(leaf)
    beside = path[[n.id for n in path].index(head.id) + 1]
    # The same prefix, so the same distribution that the path's own action was drawn from.
    forced.entropy = None if beside.entropy is None else beside.entropy[:1].copy()
    forced.top = None if beside.top is None else beside.top.cut(0, 1)
    stop = next((s for s in hand.task.stop if s in hand.turn(forced)), None)
    if token == hand.codec.eos_id:
        hand.close(forced, "eos", "the forced token ends the text")
    elif stop is not None:
        forced.finish, forced.notes["stopped_by"] = "stop", stop
        if not hand.interactive:
            hand.close(forced, "stop", f"the forced token completes {stop!r}")
    return forced


Score = Callable[[Node], NDArray[np.float64]]
"""A number per action of a node: how good a place to fork BEFORE it (what precedes stays, the action is drawn anew)."""


class Scorer(Protocol):
    """Scores places to fork at, from what an engine records."""

    @property
    def want(self) -> frozenset[str]:
        """Extras it reads."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """What the engine must offer."""
        ...

    async def on(self, hand: Hand) -> Score:
        """The score under the engine's present weights."""
        ...


@dataclass(frozen=True, slots=True)
class BySignal:
    """A signal as a score: fork where it is largest."""

    signal: Signal = field(default_factory=lambda: Signal("entropy:full"))

    @property
    def want(self) -> frozenset[str]:
        """The signal's."""
        return self.signal.want

    @property
    def needs(self) -> frozenset[str]:
        """The signal's."""
        return self.signal.needs

    async def on(self, hand: Hand) -> Score:
        """The signal as it is."""
        return self.signal.read


class ForkPlace(NamedTuple):
    """A position on a leaf's path (actions before it stay) and what the action there scored."""

    leaf: Node
    position: int
    score: float


async def stems(
    hand: Hand, n: int, *, want: frozenset[str], start: Node | None = None, birth: Birth | None = None,
    watch: Watch | None = None, draw: SamplingOptions | None = None,
) -> list[Node]:  # fmt: skip
    """Play n whole rollouts from a node (the root), with signals recorded; returns their leaves."""
    place = hand.tree.root if start is None else start
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(play(hand, place, birth=birth, want=want, watch=watch, **(draw or {}))) for _ in range(n)
        ]
    return [leaf for task in tasks if (leaf := task.result()) is not place]


async def branch(hand: Hand, place: ForkPlace, n: int, *, want: frozenset[str] = frozenset(), why: str) -> list[Node]:
    """Cut a leaf's path at a place and play n new branches there; the event names the score that chose it."""
    head = hand.place(place.leaf, place.position)
    hand.event("select", head, why, score=place.score, position=place.position, branches=n)
    return await stems(hand, n, want=want, start=head, birth="resample")


def scored(tree: Tree, leaf: Node, score: Score) -> list[ForkPlace]:
    """Every place on a path where a sampled policy action could be drawn anew, in order."""
    found: list[ForkPlace] = []
    before = 0
    for node in tree.path(leaf):
        if node.role == "policy" and not node.forced and len(node):
            found += [ForkPlace(leaf, before + i, float(v)) for i, v in enumerate(score(node))]
        before += len(node)
    return found


def best(found: list[ForkPlace], n: int, *, apart: int = 1) -> list[ForkPlace]:
    """The n highest places, at least `apart` actions from each other on the path; earlier wins ties."""
    chosen: list[ForkPlace] = []
    for place in sorted(found, key=lambda p: (-p.score, p.position)):
        if all(abs(place.position - other.position) >= apart for other in chosen):
            chosen.append(place)
        if len(chosen) == n:
            break
    return chosen


@dataclass(frozen=True, slots=True)
class TwoWaves:
    """ETTRL's ETMR (arXiv 2508.11356): M stems, then B new branches at the N most uncertain positions of each.

    Leaves = M·(1 + N·B). `apart` keeps the positions from clustering in the first tokens, where nothing is saved.
    """

    stems: int = 3
    positions: int = 2
    branches: int = 2
    apart: int = 1
    scorer: Scorer = field(default_factory=BySignal)
    record: frozenset[str] = frozenset()
    """Extras to record for the credit, besides the scorer's."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return asked(self.scorer.want, self.record)

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, and what the scorer needs."""
        return features(self.want) | self.scorer.needs

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Both waves."""
        leaves = [leaf for leaf in await stems(hand, self.stems, want=self.want) if leaf.status == "done"]
        score = await self.scorer.on(hand)
        found = (scored(tree, leaf, score) for leaf in leaves)
        chosen = [place for stem in found for place in best(stem, self.positions, apart=self.apart)]
        async with asyncio.TaskGroup() as group:
            for place in chosen:
                why = f"among the {self.positions} highest scores of its stem"
                group.create_task(branch(hand, place, self.branches, want=self.want, why=why))


@dataclass(frozen=True, slots=True)
class OneAtATime:
    """ROSE's generator (arXiv 2601.05053): each rollout forks the best place of all earlier ones, or restarts (ε).

    The place with the highest score on any path is cut, and the action there is drawn anew. A place that was used is
    consumed unless told otherwise: released code never consumes it and reuses one argmax until a larger one appears.
    """

    leaves: int = 8
    scorer: Scorer = field(default_factory=BySignal)
    restart: float = 0.5
    """ε: chance of a fresh rollout from the root instead of a fork."""
    consume: bool = True
    record: frozenset[str] = frozenset()
    """Extras to record for the credit, besides the scorer's."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return asked(self.scorer.want, self.record)

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, and what the scorer needs."""
        return features(self.want) | self.scorer.needs

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Sequential within the prompt; prompts run side by side."""
        score = await self.scorer.on(hand)
        grown: list[Node] = []
        used: set[bytes] = set()
        for turn in range(self.leaves):
            fresh = turn == 0 or hand.rng.child("restart", turn).uniform() < self.restart
            place = None if fresh else self._best(tree, score, grown, used)
            if place is None:
                added = await stems(hand, 1, want=self.want, birth="restart" if turn else None)
            else:
                added = await branch(hand, place, 1, want=self.want, why="the highest score on any path")
                used.add(_identity(tree, place))
            if not added:
                return
            grown += [leaf for leaf in added if leaf.status == "done"]

    def _best(self, tree: Tree, score: Score, grown: list[Node], used: set[bytes]) -> ForkPlace | None:
        found = [p for leaf in grown for p in scored(tree, leaf, score)]
        if self.consume:
            found = [p for p in found if _identity(tree, p) not in used]
        return max(found, key=lambda p: p.score, default=None)


def _identity(tree: Tree, place: ForkPlace) -> bytes:
    """A place is its prefix: the same actions before it, whichever leaf they were found on."""
    return tree.prefix(place.leaf)[: place.position].tobytes()
