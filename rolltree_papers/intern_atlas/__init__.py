"""Intern-Atlas: search along the evolution of methods (its self-guided temporal tree search)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.generate.choose import decide
from rolltree.generate.hand import Hand
from rolltree.generate.search.graph import TRIED, Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search
from rolltree.generate.search.proposals import ProposalRules, ProposedActions
from rolltree.generate.search.queues import BestFirst
from rolltree.generate.search.select import ComposedMove, only, untried
from rolltree.generate.search.steps import finished, judge_of
from rolltree.generate.signals import features
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree

# Best first through a graph that is asked action by action, forward in time alone (Intern-Atlas; reconstructed).
#
# A proposal names a neighbour, and its score says how well it goes on from here. Where the environment's answer shows a
# time that is not later than the one before it, the step is given up: an evolution does not go back. The answer is the
# path whose steps were the most promising on average.

TIME = "time"
"""Key in a node's notes: when the place is that it stands for."""
EARLIER, UNFOLLOWED = "it does not come later", "not followed"
"""Why a step, and a proposal, is given up."""


def promising(node: SearchNode[Any]) -> float:
    """What a queue of proposals goes by; the root comes first."""
    return np.inf if node.parent is None else node.prior


def later(node: SearchNode[Any], time: float) -> bool:
    """Whether a time is later than the last one known on the way to a node's parent."""
    known = [n.notes[TIME] for n in node.path()[:-1] if n.notes.get(TIME) is not None]
    return not known or time > known[-1]


def tried(graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
    """A backup that tells nothing upwards: what was tried is not tried again."""
    move.node.notes[TRIED] = True


@dataclass(frozen=True, slots=True)
class OrderedActions:
    """Does up to `steps` actions, the most promising proposal anywhere first."""

    steps: int = 20
    time: str = ""
    """Regular expression of a number in the environment's answer; "" = there is no order."""
    least: float = 0.0
    """Proposals scored below it are not followed."""
    proposals: ProposalRules = field(default_factory=ProposalRules)

    @property
    def needs(self) -> frozenset[str]:
        """An environment, and places in it to come back to."""
        return features(self.proposals.judge.want) | {"turns", "snapshot"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Search, and choose a path."""
        world = _Ordered(self, hand)
        plan = ComposedMove(BestFirst(untried, promising), only("do"), tried)
        graph = SearchGraph(tree.root)
        await search(
            plan, graph, world.make, turns=self.steps + 1, rng=lambda turn: hand.rng.child("search", turn).generator()
        )
        world.give_up(graph, UNFOLLOWED)
        for place in (n.payload for n in graph):
            going_on = any(below.status != "pruned" for below in tree.children(place))
            if place.role == "env" and place.status == "open" and not going_on:
                await world.chain(place)
        scores = {n.payload.id: _mean(n) for n in graph}
        for leaf in finished(tree):
            leaf.scores["value"] = scores.get(world.ends.get(leaf.id, leaf.id), 0.0)
        hand.event("note", None, "forward in time", done=sum(bool(n.notes.get(TRIED)) for n in graph) - 1,
                   earlier=world.earlier)  # fmt: skip
        decide(hand, finished(tree), "best")


def _mean(node: SearchNode[Node]) -> float:
    steps = [n.prior for n in node.path()[1:]]
    return float(np.mean(steps)) if steps else 0.0


class _Ordered(ProposedActions):
    """Steps that must come later than what is before them."""

    def __init__(self, knobs: OrderedActions, hand: Hand) -> None:
        super().__init__(hand, knobs.proposals)
        self.knobs = knobs
        self.earlier = 0
        self.ends: dict[int, int] = {}
        """Nodes that end chains, with the places they stand at."""

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
        """As of `ProposedActions`, with times, and without what is not promising enough."""
        node = moves[0].node
        if node.parent is None:
            return [self._kept(await self.propose(node.payload, self.ways(node)))]
        place = await self.do(node.payload)
        if place is None:
            return None
        time = self.time_of(place)
        if time is not None and not later(node, time):
            self.earlier += 1
            self.hand.prune(node.payload, why=EARLIER, time=time)
            return [[Made(place, None, closed=True, here=True, notes={TRIED: True})]]
        done = self.done(place)
        done.notes[TIME] = time
        return [[done, *(self._kept(await self.propose(place, self.ways(node))) if place.status == "open" else ())]]

    async def chain(self, place: Node) -> None:
        """A chain may end anywhere: one that nobody went on with stands as it is, verified."""
        hand = self.hand
        end = place if place.is_leaf else await hand.force(place, [], why="the chain stands")
        if end is not None and end.status == "open":
            hand.close(end, "stop", "the chain stands")
            await hand.verify(end)
            self.ends[end.id] = place.id

    def _kept(self, made: Sequence[Made[Node]]) -> list[Made[Node]]:
        for one in made:
            if one.prior < self.knobs.least:
                self.hand.prune(one.payload, why=UNFOLLOWED, score=one.prior)
        return [one for one in made if one.prior >= self.knobs.least]

    def time_of(self, place: Node) -> float | None:
        """The number in the environment's answer; None where it says none, or nobody asks for it."""
        found = re.search(self.knobs.time, str(self.hand.read(place.actions))) if self.knobs.time else None
        return None if found is None else float(found.group())


@dataclass(frozen=True, slots=True)
class InternAtlas:
    """Best first through a graph of successors, forward in time alone; the answer is the most promising chain.

    The graph is an environment whose actions name neighbours and whose answers show a time that `time` reads. Only the
    abstract was read: that one queue orders all open steps by a policy's score, that weak evidence is cut at `least`,
    that a chain may end anywhere and is worth the mean of its steps are reconstructed. The graph of a million papers,
    its typed edges with quotations, and the judging of ideas are left out. Where times are wrong the order harms
    (`python -m rolltree_papers.intern_atlas.study`).
    """

    card: ClassVar[Card] = Card(
        "intern_atlas", "Temporal tree search over a graph of methods", "Intern-Atlas", 2026,
        "strong agreement of evolution chains with those of experts (no number in the abstract)",
        ("generate", "control"), "grpo",
        Evidence("planted chain found, a tenth of the times wrong", "the same queue without an order of time",
                 least=0.02, check="rolltree_papers.intern_atlas.study:chained", seeds=5),
        counter=Counter("rollout/pruned/not followed"),
    )  # fmt: skip
    expansions: int = 20
    """Actions that are done."""
    ways: int = 4
    """Neighbours proposed at a place."""
    time: str = ""
    """Regular expression of a number in the environment's answer that must grow along a chain; "" = no order."""
    least: float = 0.0
    """Proposals scored below it are not followed."""
    worth: str = "step"
    """How promising a neighbour is: path, step or least (confidence), or head:FILE."""

    def build(self) -> Parts:
        """A queue with an order; few paths end, so who trains on them compares them with the batch's."""
        check_group("intern_atlas", self.ways, least=1)
        if self.expansions < 1:
            raise RecipeError(f"intern_atlas: expansions={self.expansions} does nothing; give 1 or more")
        try:
            re.compile(self.time)
        except re.error as error:
            raise RecipeError(f"intern_atlas: time={self.time!r} is no regular expression ({error})") from None
        rules = ProposalRules(self.ways, judge_of(self.worth), tries=0)
        strategy = OrderedActions(self.expansions, self.time, self.least, rules)
        return replace(search_parts("intern_atlas", strategy), credit=load_credit("reinforce_pp"))
