"""Pieces of an answer as the nodes of a search: each node ends a step, its children are ways on from there.

One strategy for what differs only in its selection: UCT (MCTS), a priority queue (best first), a stack (tree of
thoughts). What a node is worth is a scorer's opinion of it, or the mean worth of rollouts from there to the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from rolltree.generate.choose import decide, grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.head import load_head
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, JudgeError, Recorded
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.scorers import Verified
from rolltree.generate.search.backup import Backup, MeanBackup
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search, streams
from rolltree.generate.search.queues import BestFirst, Stack
from rolltree.generate.search.select import UCT, ComposedMove, Descend, ScheduleRamp, Select, once, only
from rolltree.generate.turns import play, stretch
from rolltree.tree import Node, Tree

# What a node of a search is worth: judges by name.


def judge_of(worth: str) -> Judge:
    """The judge that recipes call so: path, step, least (confidence), verifier, or head:FILE (a trained step head)."""
    if worth in ("path", "step", "least"):
        return Confidence(worth)
    if worth == "verifier":
        return Verified(Confidence())
    if worth.startswith("head:"):
        return load_head(worth.removeprefix("head:"))
    raise JudgeError(f"worth={worth!r} is none of path, step, least, verifier and head:FILE")


@dataclass(frozen=True, slots=True)
class StepTree(Recorded):
    """Expands one node a turn by `ways` steps, until so many turns, so many answers, or the budget.

    Ways on that are token for token the same are one node. Where no path has been finished by then, the best one is
    played to its end. The answer is chosen among all finished paths (`decide`).
    """

    turns: int = 16
    """Expansions."""
    ways: int = 4
    """Steps tried at a node."""
    select: Literal["uct", "best", "stack"] = "uct"
    """uct: from the root down; best: the most promising node anywhere; stack: depth first."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing."""
    scorer: Judge = field(default_factory=Confidence)
    """A judge of single paths: how promising each is, in [0, 1]."""
    rollouts: int = 0
    """Rollouts to the end from every new node, whose mean worth is the node's; 0 = the scorer's opinion of the node."""
    exploration: float = 1.414
    """c of UCT."""
    last_exploration: float | None = None
    """c at the budget's end, where it goes there as a line; None = it stays."""
    prior: float = 0.0
    """c_v of the blend with the prior, which is the confidence in the step (I-MCTS's 0.2); 0 = no prior."""
    threshold: float = 0.0
    """Below it a path is not gone on with (stack)."""
    depth: int | None = None
    """Most steps of a path; None = as the task says."""
    answers: int | None = None
    """Stop at so many finished paths."""
    enough: float | None = None
    """Stop at a finished path that is worth so much; None = go on."""
    workers: int = 1
    """Expansions under way at once."""
    backup: Backup = field(default_factory=MeanBackup)
    final: Literal["vote", "best"] = "vote"
    """The answer: most value in all, or the single best leaf's."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every step."""
        return self.scorer.want

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Search, then choose an answer."""
        world = _Steps(self, hand)
        plan = ComposedMove(self.rule(), only("step", self.ways), self.backup)
        per_prompt = hand.setting.per_prompt
        limit = None if per_prompt is None else per_prompt.decoded
        graph = SearchGraph(tree.root)
        await search(
            plan, graph, world.make, turns=self.turns, workers=self.workers,
            rng=streams(hand),
            progress=lambda over: max(over / self.turns, graph.spent / limit if limit else 0.0),
            stop=lambda _: world.stands(),
        )  # fmt: skip
        await world.finish(graph)
        done = finished(tree)
        for leaf, value in zip(done, await grades(hand, self.scorer, done), strict=True):
            leaf.scores["value"] = float(value)
        decide(hand, done, self.final)

    def rule(self) -> Select:
        """Where to work next."""
        room = once(self.ways, self.depth)
        if self.select == "best":
            return BestFirst(room)
        if self.select == "stack":
            return Stack(room, go_on=lambda n: n.parent is None or (n.value or 0.0) >= self.threshold)
        c = self.exploration if self.last_exploration is None else ScheduleRamp(self.exploration, self.last_exploration)
        return Descend(room, UCT(c, prior=self.prior, unvisited=self.prior))


class _Steps:
    """What a move makes: steps on a tree, scored."""

    def __init__(self, knobs: StepTree, hand: Hand) -> None:
        self.knobs = knobs
        self.hand = hand
        self.best = -np.inf
        """Most that a finished path was worth by now."""
        self.draw: SamplingOptions = {
            "max_tokens": knobs.step, "stop": (knobs.delimiter,) if knobs.delimiter else (), "forks": "planned"
        }  # fmt: skip

    def stands(self) -> bool:
        """Whether there are answers enough, or one that is good enough."""
        k = self.knobs
        many = k.answers is not None and len(finished(self.hand.tree)) >= k.answers
        return many or (k.enough is not None and self.best >= k.enough)

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
        """The ways on from one node; None where the budget has ended."""
        return None if (made := await self.expanded(moves[0])) is None else [made]

    async def expanded(self, move: Move[Node]) -> list[Made[Node]] | None:
        """Steps from a node, twins merged, each with its worth."""
        k, hand, place = self.knobs, self.hand, move.node.payload
        numbers = {"visits": move.node.visits, "mean": round(move.node.mean, 4), "depth": move.node.depth}
        hand.event("select", place, f"{k.select} goes on here", **numbers)
        ends = await stretch(
            hand, place, move.ways, want=k.want, why=f"a step of the search by {k.select}", **self.draw
        )
        if not ends:
            return None
        kept = merged(hand, ends)
        opinions = await grades(hand, k.scorer, kept)
        priors = await grades(hand, Confidence("step"), kept) if k.prior else [0.0] * len(kept)
        # What merging dropped was paid for too.
        spare = sum(len(end) for end in ends if end not in kept)
        return [
            await self.worth(end, float(opinion), float(prior), spare if i == 0 else 0)
            for i, (end, opinion, prior) in enumerate(zip(kept, opinions, priors, strict=True))
        ]

    async def worth(self, end: Node, opinion: float, prior: float, spare: int) -> Made[Node]:
        """A node with its value: rollouts from it where they are asked for and it may go on."""
        k, hand = self.knobs, self.hand
        cost, value = len(end) + spare, opinion
        closed = end.status != "open"
        if k.rollouts and not closed:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(play(hand, end, want=k.want, birth="resample")) for _ in range(k.rollouts)]
            leaves = [t.result() for t in tasks if t.result() is not end and t.result().status == "done"]
            cost += sum(len(leaf) for leaf in leaves)
            if leaves:
                worths = await grades(hand, k.scorer, leaves)
                self.best = max(self.best, *worths)
                value = float(np.mean(worths))
        elif end.status == "done":
            self.best = max(self.best, opinion)
        failed = end.status == "failed"
        end.scores["node_value"] = value
        return Made(end, None if failed else value, prior, closed=closed, cost=cost)

    async def finish(self, graph: SearchGraph[Node]) -> None:
        """Play the best open path to its end where nothing else was finished."""
        if finished(self.hand.tree):
            return
        live = [n for n in graph if n.payload.status == "open" and n.payload.is_leaf and n.parent is not None]
        best = graph.best(live)
        place: SearchNode[Node] = graph.root if best is None else best
        await play(self.hand, place.payload, want=self.knobs.want)


def merged(hand: Hand, ends: Sequence[Node]) -> list[Node]:
    """Ways on without twins: of two that wrote the same and stand alike the later is pruned."""
    kept: dict[tuple[bytes, str], Node] = {}
    for end in ends:
        key = (end.actions.tobytes(), end.status)
        if key in kept:
            hand.prune(end, why="the same as a sibling", sibling=kept[key].id)
        else:
            kept[key] = end
    return list(kept.values())


def finished(tree: Tree) -> list[Node]:
    """Leaves that have an outcome."""
    return [leaf for leaf in tree.leaves() if leaf.status == "done" and "reward" in leaf.scores]
