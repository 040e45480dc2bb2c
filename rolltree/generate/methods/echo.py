"""Stems, then forced alternatives where a gate opens: entropy and confidence decide where, whether and how wide."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rolltree.engine.protocol import Engine, token_codec
from rolltree.generate.alternatives import alternative
from rolltree.generate.backfill import backfill
from rolltree.generate.hand import Hand
from rolltree.generate.methods.echo_doubt import Doubt
from rolltree.generate.methods.echo_gates import Gate, Gauge
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.signals import asked, features
from rolltree.generate.stems import stems
from rolltree.generate.turns import proceed
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class GatedForks:
    """ECHO's generator (arXiv 2602.02150): one gate per stem, its most likely untaken tokens forced, restarts after.

    Forced tokens are not drawn from the policy, so leaves do not follow its distribution; the record says which are
    forced.
    """

    leaves: int = 16
    stems: int = 8
    gauge: Gauge = field(default_factory=Gauge)
    gate: Gate = field(default_factory=Gate)
    doubt: Doubt | None = field(default_factory=Doubt)
    """What ends paths early; None = nothing."""
    chunk: int = 16
    """Tokens between two looks at a path."""
    record: frozenset[str] = frozenset()
    """Extras to record for the credit, besides the gauge's."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action; alternatives enough for the widest fork."""
        wide = {f"top:{self.gate.most + 1}"}
        return asked(self.gauge.entropy.want, self.gauge.confidence.want, wide, self.record)

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded."""
        return features(self.want)

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse thresholds that can never fire under this vocabulary."""
        size = token_codec(engine, "ECHO").vocab_size
        self.gate.check(self.gauge, size)
        if self.doubt is not None:
            self.doubt.check(size)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Stems, gated alternatives, restarts."""
        draw: SamplingOptions = {"max_tokens": self.chunk} if self.doubt is not None else {}
        grown = await stems(hand, min(self.stems, self.leaves), want=self.want, watch=self.doubt, draw=draw)
        spare = self.leaves - len(grown)
        forced: list[Node] = []
        ready = [leaf for leaf in grown if leaf.status == "done" and leaf.finish != "abort"]
        opened = sum(self.gate.first(self.gauge.read(hand.tree, leaf)) is not None for leaf in ready)
        hand.event("note", None, f"the gate opens on {opened} of {len(ready)} stems", opened=opened, stems=len(ready))
        for leaf in ready:
            forced += await self._alternatives(hand, leaf, spare - len(forced))
        async with asyncio.TaskGroup() as group:
            for node in forced:
                group.create_task(proceed(hand, node, want=self.want, watch=self.doubt, **draw))
        await backfill(hand, "restart", self.leaves, want=self.want, draw=draw, watch=self.doubt)

    async def _alternatives(self, hand: Hand, leaf: Node, spare: int) -> list[Node]:
        """Force the likeliest untaken tokens where the gate opens first on a leaf's path."""
        reading = self.gauge.read(hand.tree, leaf)
        index = self.gate.first(reading)
        if index is None:
            return []
        position, width = int(reading.position[index]), self.gate.width(reading, index)
        taken, likely = _alternatives_at(hand.tree, leaf, position)
        tokens = [token for token in likely if token != taken][: min(width, spare)]
        numbers = {"entropy": float(reading.entropy[index]), "confidence": float(reading.confidence[index])}
        head = hand.place(leaf, position)
        hand.event("select", head, "the gate opens", width=width, granted=len(tokens), position=position, **numbers)
        made = [await alternative(hand, leaf, position, token, why="likely, not drawn") for token in tokens]
        return [node for node in made if node is not None and node.status != "failed"]


def _alternatives_at(tree: Tree, leaf: Node, position: int) -> tuple[int, list[int]]:
    """The action at a position of a leaf's path and the most likely ones there, best first."""
    for node in tree.path(leaf):
        if position < len(node):
            assert node.top is not None, f"node {node.id} was extended without alternatives"
            order = (-node.top.logp[position]).argsort(kind="stable")
            return int(node.actions[position]), [int(t) for t in node.top.ids[position][order]]
        position -= len(node)
    raise IndexError(f"the path to node {leaf.id} ends before the position")
