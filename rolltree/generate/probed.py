"""Rollouts that are looked at while they are written: whatever grows them, some may be ended early.

A run is written up to the length at which it is looked at, judged by its last hidden state, and then pruned, or written
on in the same node as if nothing had happened. A pruned rollout is a pruned node: its tokens are paid and counted, it
has no outcome, and it teaches nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from rolltree.control.ledger import Budget, Limits
from rolltree.control.probe import Judgement, Over, Probe, Probed, State
from rolltree.engine.protocol import Engine
from rolltree.errors import RolltreeError
from rolltree.generate.decode import open_requests
from rolltree.generate.hand import Hand
from rolltree.generate.recorder import latest_rollout
from rolltree.generate.requests import WRITTEN, Continuations, SamplingOptions
from rolltree.generate.strategy import SampleStrategy, TreeStrategy
from rolltree.task.protocol import Task
from rolltree.tree import Birth, Node, Tree


class ProbeError(RolltreeError, ValueError):
    """Rollouts that cannot be looked at in flight: names the probe, the part and the way out."""


def check_probe(over: Over, who: str, strategy: object, engine: Engine, task: Task) -> None:
    """Refuse a control with a probe where no state can be seen, or where nothing is written side by side."""
    if engine.capabilities.lacking(frozenset({"hidden"})):
        raise ProbeError(
            f"{who} needs 'hidden', which the engine {type(engine).__name__} does not offer; choose another engine or "
            "another control"
        )
    samples = isinstance(strategy, SampleStrategy)
    if over != "recent" and not (samples and task.max_turns == 0):
        what = "grows a tree" if not samples else f"plays turns of {task.name!r}"
        raise ProbeError(
            f"{who} compares rollouts that are written side by side (over={over!r}), but the strategy "
            f"{type(strategy).__name__} {what}; give over='recent', or choose independent rollouts of one turn"
        )


@dataclass(slots=True)
class ProbeGate:
    """Where rollouts wait until all that write beside them have got as far or have ended."""

    probe: Probe
    writing: int = 0
    waiting: list[tuple[State, str, asyncio.Future[Judgement]]] = field(
        default_factory=list[tuple[State, str, asyncio.Future[Judgement]]]
    )

    def leave(self, count: int = 1) -> None:
        """So many will not arrive any more."""
        self.writing -= count
        if self.writing > 0 or not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        said = self.probe.judge([state for state, _, _ in waiting], [tree for _, tree, _ in waiting])
        for (_, _, future), judgement in zip(waiting, said, strict=True):
            if not future.done():
                future.set_result(judgement)

    def arrive(self, state: State, tree: str) -> asyncio.Future[Judgement]:
        """One is there; what is said of it is in the future."""
        future: asyncio.Future[Judgement] = asyncio.get_running_loop().create_future()
        self.waiting.append((state, tree, future))
        self.leave()
        return future


@dataclass(slots=True)
class InFlight:
    """What is to be done to the rollouts of one tree while they are written, and what was seen."""

    probe: Probe | None = None
    seen: list[tuple[Node, State, Judgement, bool, int]] = field(
        default_factory=list[tuple[Node, State, Judgement, bool, int]]
    )

    def outcomes(self, tree: Tree) -> tuple[Probed, ...]:
        """All that was looked at, with the mean outcome of what was written on from there."""
        out: list[Probed] = []
        for node, state, judgement, pruned, tokens in self.seen:
            ends = [] if pruned else [leaf for leaf in tree.leaves(node) if leaf.status == "done"]
            known = [min(max(leaf.scores["reward"], 0.0), 1.0) for leaf in ends if "reward" in leaf.scores]
            out.append(Probed(state, judgement, pruned, tokens, sum(known) / len(known) if known else None))
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Observed:
    """A strategy whose rollouts are looked at in flight."""

    inner: TreeStrategy
    flights: Mapping[str, InFlight]
    """By tree id."""
    gates: dict[str, ProbeGate] = field(default_factory=dict[str, ProbeGate])

    @property
    def needs(self) -> frozenset[str]:
        """Those of the inner strategy, and hidden states where they are looked at."""
        watched = any(flight.probe is not None for flight in self.flights.values())
        return self.inner.needs | ({"hidden"} if watched else frozenset())

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Let the inner strategy grow the tree with a hand that looks."""
        flight = self.flights[tree.id]
        if flight.probe is None:
            await self.inner.grow_tree(tree, hand)
            return
        gate = self.gates.setdefault(tree.id if flight.probe.over == "group" else "", ProbeGate(flight.probe))
        watch = Watch(flight.probe, flight, None if flight.probe.over == "recent" else gate)
        await self.inner.grow_tree(tree, ProbingHand(hand, watch))


@dataclass(frozen=True, slots=True)
class Watch:
    """Who looks, where it is written down, and where rollouts wait for one another."""

    probe: Probe
    flight: InFlight
    gate: ProbeGate | None


class ProbingHand(Hand):
    """A hand whose runs stop at the probe's length to be looked at."""

    def __init__(self, hand: Hand, watch: Watch) -> None:
        super().__init__(hand.setting, hand.budget, hand.tree, actor=hand.actor, level=hand.level)
        self._watch = watch

    def on(self, tree: Tree, limits: Limits | None = None) -> Hand:
        """As of `Hand`; another tree is not looked at."""
        other = super().on(tree, limits)
        return ProbingHand(other, self._watch) if tree is self.tree else other

    def under(self, budget: Budget | Limits, name: str = "branch") -> Hand:
        """As of `Hand`."""
        return ProbingHand(super().under(budget, name), self._watch)

    def as_actor(self, actor: str, level: int = 0) -> Hand:
        """As of `Hand`."""
        return ProbingHand(super().as_actor(actor, level), self._watch)

    async def extend(
        self, node: Node, *, n: int = 1, want: Collection[str] = (), birth: Birth | None = None, why: str = "",
        numbers: Mapping[str, Any] | None = None, **draw: Unpack[SamplingOptions],
    ) -> list[Node]:  # fmt: skip
        """As of `Hand`, with a look at every run that comes to the probe's length."""
        written = sum(len(x) for x in latest_rollout(self.tree.path(node)) if x.role in WRITTEN)
        first, asked = self._watch.probe.at(self.limit) - written, draw.get("max_tokens")
        out_of_reach = first <= 0 or (asked is not None and asked < first) or self.limit - written <= first
        if out_of_reach or self.engine is not self.setting.engine:  # a peer's states are of another kind
            return await super().extend(node, n=n, want=want, birth=birth, why=why, numbers=numbers, **draw)
        gate, due = self._watch.gate, n
        if gate is not None:
            gate.writing += n
        try:
            begin: SamplingOptions = {**draw, "max_tokens": first}
            grown = await super().extend(
                node, n=n, want={*want, "hidden"}, birth=birth, why=why, numbers=numbers, **begin
            )
            there = {x.id for x in grown if self._arrived(x, first)}
            waits: dict[int, asyncio.Future[Judgement]] = {}
            for child in grown:
                if child.id in there and gate is not None:
                    due -= 1
                    waits[child.id] = gate.arrive(self.hidden(child), self.tree.id)
        finally:
            if gate is not None:
                gate.leave(due)
        more = None if asked is None else asked - first
        async with asyncio.TaskGroup() as group:
            for child in grown:
                if child.id in there:
                    group.create_task(self._look(child, waits.get(child.id), frozenset(want), more, draw))
        return grown

    def _arrived(self, node: Node, first: int) -> bool:
        at_length = node.status == "open" and node.finish == "length" and len(node) == first
        return at_length and (self.tree.id, node.id) in self.setting.hidden

    async def _look(
        self,
        node: Node,
        wait: asyncio.Future[Judgement] | None,
        want: frozenset[str],
        more: int | None,
        draw: SamplingOptions,
    ) -> None:
        state, tokens = np.asarray(self.hidden(node), np.float32), self._watch.probe.at(self.limit)
        said = self._watch.probe.judge([state], [self.tree.id])[0] if wait is None else await wait
        if node.status != "open":  # pruned by whoever else acts on the tree while it waited
            return
        drawn = self.rng_at(node, "survive").uniform()
        pruned = drawn >= said.keep
        self._watch.flight.seen.append((node, state, said, pruned, tokens))
        node.scores["posterior"] = said.posterior
        numbers = {"score": said.score, "posterior": said.posterior, "keep": said.keep, "drawn": drawn}
        if pruned:
            self.prune(node, why="unlikely to balance its group", tokens=tokens, **numbers)
            return
        self.event("note", node, "looked at in flight", **numbers)
        if more is not None and more <= 0:
            return
        node.finish = None
        ask: SamplingOptions = {**draw, "max_tokens": more}
        await self._finish(open_requests(self, node, Continuations(1, ask, want), into=True))
