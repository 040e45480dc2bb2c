"""WebOperator: a queue of proposed actions that knows which of them cannot be undone (arXiv 2512.12692).

One action of the queue is done a turn, the best one, wherever it stands. Actions that end the episode wait until enough
of them are known, those that cannot be undone come last, and after one of these all that was proposed before it is
void. The rules know nothing of pages; `OperatedActions` puts a policy's turns behind them, the authors' study
(`studies.search.site`) a site whose state is lost on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolltree.generate.hand import Hand
from rolltree.generate.search.actions import COUNT, ENDED, NAME, kind_of, repeats, way_back
from rolltree.generate.search.graph import TRIED, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search
from rolltree.generate.search.proposals import ProposalRules, ProposedActions
from rolltree.generate.search.select import untried
from rolltree.generate.search.steps import finished
from rolltree.generate.signals import features
from rolltree.tree import Tree

VOID, FULL, LOST, AGREED, DEEP, LEFT = (
    "an action was done that cannot be undone", "the queue is full", "no way back leads there", "all agreed to end",
    "the path is long enough", "another action was done",
)  # fmt: skip
"""Why a proposal is given up."""


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """Knobs of the queue; defaults are the released ones."""

    queue: int = 4
    """Most proposals that wait; one less after every action that cannot be undone."""
    depth: int = 20
    """Most actions one after another."""
    steps: int = 20
    """Actions that are done."""
    solutions: int = 2
    """Actions that end the episode are known so often before the best of them is done."""
    late: float = 0.8
    """Share of the steps from which on none is waited for."""
    prunes: int = 3
    """Times that the queue overflowed, from which on none is waited for."""
    repeats: int = 3
    """An action so often in a row is a repeated one: of these only the best stays when the queue is full."""


class ActionQueue:
    """The plan; `drop` is told of every proposal that is given up."""

    def __init__(self, rules: OperatorRules, drop: Callable[[SearchNode[Any], str], None]) -> None:
        self.rules = rules
        self.drop = drop
        self.here: SearchNode[Any] | None = None
        """Where the world stands."""
        self.done, self.pruned, self.destroyed = 0, 0, 0
        self.ends = 0
        """Proposals to end the episode that were ever made."""
        self.over = False

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """The next action, the root's proposals first."""
        if self.over:
            return []
        node = moment.graph.root if untried(moment.graph.root) else self.choose(self.queue(moment.graph))
        return [] if node is None else [Move(node, "do")]

    def queue(self, graph: SearchGraph[Any]) -> list[SearchNode[Any]]:
        """What waits, best first; of equals the one proposed more often."""
        waiting = [node for node in graph if node.parent is not None and untried(node)]
        return sorted(waiting, key=lambda n: (-n.prior, -n.notes.get(COUNT, 1)))

    def choose(self, waiting: Sequence[SearchNode[Any]]) -> SearchNode[Any] | None:
        """The selection, rule by rule."""
        rules = self.rules
        waiting = self._drop([n for n in waiting if way_back(n, self.here) is None], LOST, waiting)
        ending, plain, last = (
            [n for n in waiting if kind_of(n) == kind] for kind in ("terminating", "plain", "destructive")
        )
        if self.done >= rules.steps:
            return next(iter(ending), None)
        if self.destroyed or self.pruned:
            now = [n for n in ending if n.parent is self.here and way_back(n) is None]
            if now:  # it can be done from here and not once the world has moved on
                return now[0]
        enough = self.ends >= rules.solutions or self.done >= rules.late * rules.steps or self.pruned >= rules.prunes
        if ending and enough:
            return ending[0]
        if plain:
            return plain[0]
        return next(iter([*ending, *last]), None)

    def backup(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
        """After an action: what it made void is given up, and the queue is cut to its length."""
        node = move.node
        node.notes[TRIED] = True
        made = [n for n in nodes if n is not node]
        if node.parent is not None and node not in nodes:  # nobody came there: the way back was not what it had been
            node.closed = True
            return
        self.here = node
        self.done += node.parent is not None
        if kind_of(node) == "destructive":
            self.destroyed += 1
            self._drop([n for n in self.queue(graph) if n not in made], VOID)
        self.over |= bool(node.notes.get(ENDED))
        made = self._drop([n for n in made if n.depth > self.rules.depth], DEEP, made)
        self.ends += sum(kind_of(n) == "terminating" for n in made)
        if len(made) == 1 and kind_of(made[0]) == "terminating" and made[0].notes.get(COUNT, 1) >= 2:
            self._drop([n for n in self.queue(graph) if n is not made[0]], AGREED)
        self._cut(graph)

    def _cut(self, graph: SearchGraph[Any]) -> None:
        """Down to the queue's length: what cannot be reached, all but the best of its kind, copies, the worst."""
        most = max(1, self.rules.queue - self.destroyed)
        waiting = self.queue(graph)
        if len(waiting) <= most:
            return
        self.pruned += 1
        waiting = self._drop([n for n in waiting if way_back(n, self.here) is None], LOST, waiting)
        groups = [[n for n in waiting if kind_of(n) == kind] for kind in ("terminating", "destructive")]
        groups.append([n for n in waiting if kind_of(n) == "plain" and repeats(n) >= self.rules.repeats])
        for spare in (n for group in groups for n in group[:0:-1]):
            if len(waiting) > most:
                waiting = self._drop([spare], FULL, waiting)
        seen = [n.notes.get(NAME) for n in waiting]
        copies = [n for i, n in enumerate(waiting) if n.notes.get(NAME) in seen[:i]]
        plain = [n for n in waiting if kind_of(n) == "plain" and n not in copies]
        rest = [n for n in waiting if n not in copies and n not in plain]
        for spare in [*copies[::-1], *plain[::-1], *rest[::-1]]:
            if len(waiting) > most:
                waiting = self._drop([spare], FULL, waiting)

    def _drop(
        self, nodes: Sequence[SearchNode[Any]], why: str, waiting: Sequence[SearchNode[Any]] = ()
    ) -> list[SearchNode[Any]]:
        for node in nodes:
            node.closed = True
            self.drop(node, why)
        return [n for n in waiting if n not in nodes]


@dataclass(frozen=True, slots=True)
class OperatedActions:
    """Plays one episode by the queue; its answer is what the last action led to."""

    rules: OperatorRules = field(default_factory=OperatorRules)
    proposals: ProposalRules = field(default_factory=ProposalRules)

    @property
    def needs(self) -> frozenset[str]:
        """An environment, places in it to come back to, and what the judge reads."""
        return features(self.proposals.judge.want) | {"turns", "snapshot"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Search, and give up what nobody did."""
        world = ProposedActions(hand, self.proposals)
        plan = ActionQueue(self.rules, world.drop)
        graph = SearchGraph(tree.root)
        await search(
            plan, graph, world.make, turns=self.rules.steps + 2,
            rng=lambda turn: hand.rng.child("search", turn).generator(),
        )  # fmt: skip
        world.give_up(graph, LEFT)
        await world.play_on(plan.here or graph.root)
        hand.event("note", None, "actions by the queue", done=plan.done, overflowed=plan.pruned,
                   destructive=plan.destroyed, merged=sum(n.notes.get(COUNT, 1) - 1 for n in graph))  # fmt: skip
        ends = finished(tree)
        if ends:
            tree.notes["answer"] = ends[-1].notes.get("answer")
