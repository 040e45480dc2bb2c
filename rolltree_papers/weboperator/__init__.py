"""WebOperator: action-aware tree search for web agents (arXiv 2512.12692)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.hand import Hand
from rolltree.generate.judge.checklist import Checklist
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.search.graph import TRIED, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search
from rolltree.generate.search.proposals import (
    COUNT,
    ENDED,
    NAME,
    ProposalRules,
    ProposedActions,
    kind_of,
    repeats,
    way_back,
)
from rolltree.generate.search.select import untried
from rolltree.generate.search.steps import finished, judge_of
from rolltree.generate.signals import features
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.recipe.searching import search_parts
from rolltree.tree import Tree

# WebOperator: a queue of proposed actions that knows which of them cannot be undone (arXiv 2512.12692).
#
# One action of the queue is done a turn, the best one, wherever it stands. Actions that end the episode wait until
# enough of them are known, those that cannot be undone come last, and after one of these all that was proposed before
# it is void. The rules know nothing of pages; `OperatedActions` puts a policy's turns behind them, the authors' study
# (`rolltree_papers.weboperator.study`) a site whose state is lost on the way back.

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


@dataclass(frozen=True, slots=True)
class WebOperator:
    """Best first over proposed actions, with those that cannot be undone done last and never twice.

    Order, queue and defaults are those of the released code. Which action ends an episode or cannot be undone, and
    which proposals are the same, the task tells before (`DescribesActions`) and the environment after (`destructive`
    and `checkpoint` among a reply's parts); of a task that says neither every action is plain. Environments here are
    copied, or played again and checked against what they said, which is the paper's simulation before it goes back.
    Browser tabs are left out. Contexts of further proposers, and overflows of the queue as what counts for `prunes`,
    are reconstructed; so counted, they end most episodes early, which costs more than it saves where policies like to
    end too soon. A repeated action is any: the released code excepts scrolling.
    """

    card: ClassVar[Card] = Card(
        "weboperator", "Action-aware tree search", "2512.12692", 2025,
        "54.56 % on WebArena (GPT-4o), ahead of searches that hold going back to be free and safe",
        ("generate", "filter", "control"), "grpo",
        Evidence("tasks done without harm", "best first, going back by doing actions again",
                 check="rolltree_papers.weboperator.study:operated", seeds=5),
        counter=Counter("rollout/pruned/another action was done"),
    )  # fmt: skip
    ways: int = 4
    """Actions proposed at a place."""
    queue: int = 4
    """Most actions that wait (the released search_budget)."""
    actions: int = 20
    """Actions that are done at most."""
    depth: int = 20
    """Most actions one after another."""
    solutions: int = 2
    """Actions that end the episode are known so often before one is done."""
    prunes: int = 3
    """Times that the queue overflowed, from which on none is waited for (reconstructed; a large number waits on)."""
    worth: str = "step"
    """How promising an action is: path, step or least (confidence), or head:FILE; with a checklist it is not asked."""
    checklist: str = ""
    """What the goal asks for, items with | between; the score is the policy's yes + half of its "in progress"."""
    ask: str = "{prompt}{entry}\n{item}? "
    """What is read before yes, in progress and no."""
    proposers: str = ""
    """Texts of further proposers with | between; {prompt} and {said} are filled in. "" = the policy alone."""
    merged: Literal["sum", "best"] = "sum"
    """Score of proposals that do the same: all together (as released), or the best one's."""

    def build(self) -> Parts:
        """A queue over proposals; a tree has one outcome, so who trains on it compares it with the batch's."""
        check_group("weboperator", self.ways, least=1)
        if min(self.queue, self.actions, self.depth, self.solutions) < 1:
            raise RecipeError(
                f"weboperator: queue={self.queue}, actions={self.actions}, depth={self.depth} and "
                f"solutions={self.solutions} are 1 or more"
            )
        if self.worth == "verifier":
            raise RecipeError("weboperator: no verifier knows an action before it is done; choose another worth")
        items = tuple(item for item in self.checklist.split("|") if item)
        judge: Judge = Checklist(items, self.ask) if items else judge_of(self.worth)
        strategy = OperatedActions(
            OperatorRules(self.queue, self.depth, self.actions, self.solutions, prunes=self.prunes),
            ProposalRules(self.ways, judge, tuple(a for a in self.proposers.split("|") if a), merged=self.merged),
        )
        return replace(search_parts("weboperator", strategy), credit=load_credit("reinforce_pp"))
