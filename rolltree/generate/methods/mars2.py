"""Trees of attempts: every node is a complete answer, and its children are answers given with it in sight (MARS²).

A search over whole answers (`rolltree.generate.search.attempts`) whose descent is Thompson sampling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.methods.mars2_thompson import Prior
from rolltree.generate.needs import refuse_environment
from rolltree.generate.search.attempts import attempt, said, score_of
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search, streams
from rolltree.generate.signals import features
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Attempts:
    """MARS²'s generator (arXiv 2604.14564): several policies answer in one tree, one attempt after the other.

    On the way down from the root each node draws, by Thompson sampling, whether to be answered anew (GEN) or through
    one of its children (CONT), which child, and, for a new attempt, by which agent. A new score counts for its agent,
    for GEN of its parent, for itself and every attempt above it, and for CONT one level above each of these. That an
    attempt's own score counts for itself is (reconstructed).
    """

    nodes: int = 8
    """Attempts per prompt, failed ones included."""
    agents: tuple[str, ...] = ("policy", "peer")
    """Actors; each writes with the engine of its name where the run has one, else with the run's own."""
    again: str = "{prompt}"
    """What is said after an attempt to get another one; {prompt}, {answer} and {score} stand for the item's prompt and
    the attempt's answer and score."""
    choose: Literal["thompson", "chance", "wide"] = "thompson"
    """"chance": GEN or CONT, child and agent by fair draws; "wide": always from the root, agents in turn."""
    prior: Prior = field(default_factory=Prior)
    record: frozenset[str] = frozenset()
    """Extras to record for the credit."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return self.record

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded."""
        return features(self.record)

    def asks(self, hand: Hand, move: Move[Node]) -> str:
        """The text that asks for another attempt; nothing is asked at the root."""
        node = move.node
        if node.parent is None:
            return ""
        return self.again.format(prompt=hand.item.prompt, answer=said(node), score=score_of(node))

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: an attempt is one run of tokens, with one score."""
        refuse_environment(task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """One attempt after the other; prompts run side by side."""
        search_of = _TeamSearch(self, hand)
        await search(
            search_of, SearchGraph(tree.root), search_of.make, turns=self.nodes,
            rng=streams(hand),
        )  # fmt: skip


class _TeamSearch:
    """Scores of one tree by what they tell about."""

    def __init__(self, knobs: Attempts, hand: Hand) -> None:
        self.knobs = knobs
        self.hand = hand
        self.agent: defaultdict[str, list[float]] = defaultdict(list)
        self.own: defaultdict[int, list[float]] = defaultdict(list)
        """Of an attempt and everything below it."""
        self.gen: defaultdict[int, list[float]] = defaultdict(list)
        self.cont: defaultdict[int, list[float]] = defaultdict(list)

    def moves(self, moment: Moment[Node]) -> Sequence[Move[Node]]:
        """Where the next attempt is made, and by whom."""
        agents, root = self.knobs.agents, moment.graph.root
        if self.knobs.choose == "wide":
            return [Move(root, "attempt", by=agents[moment.turn % len(agents)])]
        place = root
        while children := [child for child in place.children if not child.closed]:
            if self.pick((self.gen[place.id], self.cont[place.id]), moment.rng) == 0:
                break
            place = children[self.pick([self.own[child.id] for child in children], moment.rng)]
        agent = agents[self.pick([self.agent[name] for name in agents], moment.rng)]
        seen = {f"of {name}": float(np.mean(self.agent[name])) for name in agents if self.agent[name]}
        why = f"{agent} answers at depth {place.depth}"
        self.hand.event("select", place.payload, why, agent=agent, depth=place.depth, **seen)
        return [Move(place, "attempt", by=agent)]

    def pick(self, choices: Sequence[Sequence[float]], rng: np.random.Generator) -> int:
        """One of several, by their scores or by chance."""
        if self.knobs.choose == "chance":
            return int(rng.integers(len(choices)))
        return self.knobs.prior.best(choices, rng)

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
        """One attempt, scored; None where the budget has ended."""
        made = await attempt(self.hand.as_actor(moves[0].by), moves[0], self.knobs.asks, want=self.knobs.want)
        return None if made is None else [made]

    def backup(self, graph: SearchGraph[Node], move: Move[Node], nodes: Sequence[SearchNode[Node]]) -> None:
        """Book a new attempt's score wherever it tells something."""
        for node in nodes:
            if node.value is None:
                continue
            self.agent[move.by].append(node.value)
            self.gen[move.node.id].append(node.value)
            self.own[node.id].append(node.value)
            path = move.node.path()
            for above, here in pairwise(path):
                self.own[here.id].append(node.value)
                self.cont[above.id].append(node.value)
