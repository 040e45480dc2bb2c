"""MCGS: Monte Carlo graph search (AutoMLGen, arXiv 2510.08511)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.generate.choose import decide, grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence, answer_of
from rolltree.generate.judge.protocol import Judge, ReadsJudge
from rolltree.generate.scorers import Verified
from rolltree.generate.search.attempts import OperatorTexts, attempt
from rolltree.generate.search.backup import tell
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search, streams
from rolltree.generate.search.queues import Switch, TopK
from rolltree.generate.search.select import UCT, Descend, ScheduleRamp, Select
from rolltree.generate.search.steps import judge_of
from rolltree.generate.strategy import refuse_environment
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree

# When a search stands still: nothing new was better for a while.


def branch_stagnant(graph: SearchGraph[Any], node: SearchNode[Any], window: int) -> bool:
    """Whether none of a branch's last `window` scored nodes reached the best from before them."""
    top = node.branch
    values = _values([n for n in graph if n.branch is top])
    return len(values) > window and max(values[-window:]) < max(values[:-window])


def stagnant(graph: SearchGraph[Any], window: int, epsilon: float = 1e-4) -> bool:
    """Whether none of the last `window` scored nodes beat the best from before them by more than `epsilon`."""
    values = _values(graph.nodes)
    return len(values) > window and max(values[-window:]) <= max(values[:-window]) + epsilon


def _values(nodes: Sequence[SearchNode[Any]]) -> list[float]:
    return [n.value for n in nodes if n.value is not None and n.parent is not None]


# MCGS: a tree search whose branches read one another once they stand still (AutoMLGen, arXiv 2510.08511).
#
# The rules know nothing of what a node is: `rolltree_papers.mcgs` puts answers of a policy behind them, the authors'
# study (`rolltree_papers.mcgs.study`) vectors of an exact landscape. Constants are those of the same group's open
# successor code; the paper's own table was not readable.

Anode = SearchNode[Any]
GAIN = 1e-4
"""Least gain that counts as one."""


def no_value(node: Anode) -> bool:
    """A node without a value is buggy."""
    return node.value is None


@dataclass(frozen=True, slots=True)
class McgsRules:
    """Knobs. Without all five switches what is left is plain UCT over drafts, improvements and mends."""

    turns: int = 100
    """Nodes in all; also what the schedules are shares of."""
    drafts: int = 3
    """Branches to begin with."""
    most_drafts: int = 5
    """Branches that drafts may make in all: more than the first ones once the whole search stands still."""
    improves: int = 3
    """Children of a good node."""
    picked_improves: int = 10
    """The same where the node was reached through the best few."""
    debugs: int = 1
    """Children of a buggy node, until one of them is mended."""
    evolution: bool = True
    fusion: bool = True
    aggregation: bool = True
    switch: bool = True
    """Whether selection goes over from UCT to the best few in the course of the search."""
    chains: bool = True
    """Whether what gains is gone on with at once, and told upwards only when it stops gaining."""
    fuse_from: float = 0.5
    fuse_chance: float = 0.3
    aggregate_from: float = 0.5
    aggregate_until: float = 0.83
    aggregations: int = 2
    """Most of them."""

    def uct(self) -> UCT:
        """c falls from 1.414 to 0.5 by 0.01 a turn, from turn min(drafts · improves², 0.3 turns) on, at most to 0.7."""
        n = max(self.turns, 1)
        begin = min(self.most_drafts * self.improves**2 / n, 0.3)
        return UCT(ScheduleRamp(1.414, 0.5, begin, min(begin + 91.4 / n, 0.7)))


@dataclass(slots=True)
class _Chain:
    """A line of nodes that is gone on with before anything is told upwards."""

    best: float
    fails: int = 0
    held: list[tuple[Anode, float]] = field(default_factory=list[tuple[Anode, float]])


class Mcgs:
    """The plan: drafts, then soft switch from UCT to the best few, operators by state and stagnation."""

    def __init__(self, rules: McgsRules, buggy: Callable[[Anode], bool] = no_value) -> None:
        self.rules = rules
        self.buggy = buggy
        self.used: dict[str, int] = {}
        """How often each operator was chosen."""
        self.open_drafts = rules.drafts
        self._chains: dict[int, _Chain] = {}
        self._queue: deque[Anode] = deque()
        self._now: Moment[Any] | None = None
        uct = rules.uct()
        first: Select = Descend(self.room, uct)
        best = TopK(Descend(self.picked_room, uct))
        self.select: Select = Switch(first, best, ScheduleRamp(1.0, 0.2, 0.5, 0.7)) if rules.switch else first

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """One move: a chain's next node, an aggregation where one is due, or what selection and state say."""
        self._now = moment
        graph = moment.graph
        move: Move[Any] | None = None
        while self._queue and move is None:
            node = self._queue.popleft()
            if self.picked_room(node) > 0:
                move = self.operate(node, moment)
        if move is None and self._aggregates(moment):
            bests = [b for top in graph.branches() if (b := graph.best(list(top.below()))) is not None]
            move = Move(graph.root, "aggregate", tuple(bests))
        if move is None:
            if self.room(graph.root) <= 0 and stagnant(graph, 4 * self.rules.drafts, GAIN):
                self.open_drafts = self.rules.most_drafts
            found = self.select(moment)
            move = None if found is None else self.operate(found, moment)
        if move is None:
            return []
        self.used[move.operator] = self.used.get(move.operator, 0) + 1
        return [move]

    # -- which operator --------------------------------------------------------------------------------------------

    def operate(self, node: Anode, moment: Moment[Any]) -> Move[Any]:
        """Draft at the root, debug what is buggy; else improve, or evolve and fuse where the branch stands still."""
        rules = self.rules
        if node.parent is None:
            return Move(node, "draft")
        if self.buggy(node):
            return Move(node, "debug")
        window = 6 if node.notes.pop("picked", False) else 3
        if not branch_stagnant(moment.graph, node, window):
            return Move(node, "improve")
        if rules.fusion and moment.progress > rules.fuse_from and float(moment.rng.random()) < rules.fuse_chance:
            others = fusible(moment.graph, node)
            if others:
                return Move(node, "fuse", tuple(others))
        if rules.evolution and node.depth >= 2:
            return Move(node, "evolve")
        return Move(node, "improve")

    def _aggregates(self, moment: Moment[Any]) -> bool:
        rules, graph = self.rules, moment.graph
        if not rules.aggregation or self.used.get("aggregate", 0) >= rules.aggregations or self.room(graph.root) > 0:
            return False
        if not rules.aggregate_from <= moment.progress <= rules.aggregate_until:
            return False
        good = [sum(not self.buggy(n) for n in top.below()) >= 2 for top in graph.branches()]
        return sum(good) >= 2 and stagnant(graph, 4, GAIN)

    # -- how much room ---------------------------------------------------------------------------------------------

    def room(self, node: Anode) -> int:
        """Children a node may still get."""
        return self._room(node, self.rules.improves)

    def picked_room(self, node: Anode) -> int:
        """The same where it was reached through the best few."""
        return self._room(node, self.rules.picked_improves)

    def _room(self, node: Anode, improves: int) -> int:
        if node.closed:
            return 0
        if node.parent is None:
            return self.open_drafts - sum(c.operator == "draft" for c in node.children) - node.making
        if self.buggy(node):
            mended = any(not self.buggy(child) for child in node.children)
            return 0 if mended else self.rules.debugs - len(node.children) - node.making
        return improves - len(node.children) - node.making

    # -- what a result tells ---------------------------------------------------------------------------------------

    def backup(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[Anode]) -> None:
        """Hold a chain's rewards until it ends, then tell them along parents."""
        for node in nodes:
            reward = self.reward(graph, node)
            if not self.rules.chains:
                tell(node, reward)
                continue
            start = move.node.value if move.node.parent is not None else None
            chain = self._chains.pop(move.node.id, None) or _Chain(-np.inf if start is None else start)
            chain.held.append((node, reward))
            if self._goes_on(graph, chain, node):
                self._chains[node.id] = chain
                self._queue.append(node)
            else:
                for held, told in chain.held:
                    tell(held, told)

    def reward(self, graph: SearchGraph[Any], node: Anode) -> float:
        """−1 for a bug; else 1 (1.5 where a bug was mended, 0 for a draft) and 1.5 more for the best so far."""
        if self.buggy(node) or node.value is None:
            return -1.0
        parent = node.parent
        base = 0.0 if parent is None or parent.parent is None else 1.5 if self.buggy(parent) else 1.0
        before = [n.value for n in graph.nodes[: node.id] if n.value is not None and n.parent is not None]
        return base + (1.5 if not before or node.value > max(before) else 0.0)

    def _goes_on(self, graph: SearchGraph[Any], chain: _Chain, node: Anode) -> bool:
        if self.buggy(node) or node.value is None:
            bugs = 0
            for above in reversed(node.path()):
                if above.parent is None or not self.buggy(above):
                    break
                bugs += 1
            node.closed |= bugs >= 20
            return bugs < 3
        if node.value > chain.best + GAIN:
            chain.best, chain.fails = node.value, 0
        else:
            chain.fails += 1
        if chain.fails >= 3:
            node.closed = True
            return False
        return not self._called_back(graph, node)

    def _called_back(self, graph: SearchGraph[Any], node: Anode) -> bool:
        """Late in the search a chain ends every third node of its branch, and later by chance, but not at its best."""
        now = self._now
        if now is None or now.progress < 0.4:
            return False
        branch = [n for n in graph if n.branch is node.branch and n.parent is not None]
        late = [n.value for n in branch[-4:] if n.value is not None]
        if node.value is not None and late and node.value >= max(late):
            return False
        return len(branch) % 3 == 0 or (now.progress >= 0.8 and float(now.rng.random()) < 0.5)


def fusible(graph: SearchGraph[Any], node: Anode, each: int = 2, most: int = 5) -> list[Anode]:
    """The two best nodes of every other branch, the best five of these; of the own branch where there is no other."""
    others = [n for n in graph.ranked(per_branch=each) if n.branch is not node.branch]
    own = [n for n in graph.ranked() if n is not node]
    return (others or own[:each])[:most]


# MCGS over whole answers: what its rules ask of a policy.

TEXTS: Mapping[str, str] = {
    "improve": "\n[{score}] {prompt}",
    "debug": "\n[no answer] {prompt}",
    "evolve": "\n[{path}] {prompt}",
    "fuse": "\n[{references}] {prompt}",
    "aggregate": "\n[{references}] {prompt}",
}
"""What the operators say; a draft says nothing. The wording is ours."""


@dataclass(frozen=True, slots=True)
class GraphSearch(ReadsJudge):
    """A tree of answers whose branches are shown one another's best: operators are texts, references stand in notes.

    An answer that cannot be read is buggy. Every attempt is judged by itself; the best one is the answer.
    """

    nodes: int = 32
    """Attempts per prompt, failed ones included."""
    rules: McgsRules = field(default_factory=McgsRules)
    texts: OperatorTexts = field(default_factory=lambda: OperatorTexts(TEXTS))
    judge: Judge = field(default_factory=lambda: Verified(Confidence()))
    """What an attempt is worth: the verifier's word, where it may be asked, or a judge's."""
    workers: int = 3
    """Attempts under way at once."""
    final: Literal["vote", "best"] = "best"

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: an attempt is one run of tokens, with one score."""
        refuse_environment(task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Search, then choose."""
        plan = Mcgs(replace(self.rules, turns=self.nodes), buggy=lambda node: answer_of(node.payload) is None)

        async def make(moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
            move = moves[0]
            seen = [n.payload.id for n in move.references]
            why = f"{move.operator} at depth {move.node.depth}"
            hand.event("select", move.node.payload, why, operator=move.operator, references=seen)
            made = await attempt(hand, move, self.texts, want=self.want)
            return None if made is None else [[await self.judged(hand, one) for one in made]]

        graph: SearchGraph[Node] = SearchGraph(tree.root)
        await search(
            plan, graph, make, turns=self.nodes, workers=self.workers,
            rng=streams(hand),
        )  # fmt: skip
        decide(hand, [n.payload for n in graph if n.parent is not None and usable(n)], self.final)

    async def judged(self, hand: Hand, made: Made[Node]) -> Made[Node]:
        """An attempt with the judge's value; one that was not scored has none."""
        if made.value is None:
            return made
        made.payload.scores["value"] = (await grades(hand, self.judge, [made.payload]))[0]
        return replace(made, value=made.payload.scores["value"])


def usable(node: SearchNode[Node]) -> bool:
    """Whether an attempt stands as an answer."""
    return node.payload.status == "done" and "value" in node.payload.scores


@dataclass(frozen=True, slots=True)
class McgsRecipe:
    """A tree of answers whose branches, once they stand still, are shown one another's best.

    Nodes are whole answers; operators draft, improve, debug (an answer that cannot be read), evolve along the path,
    fuse with other branches' best and aggregate the best of all. References are context only: nothing is told along
    them. Constants are those of the group's open successor code, as shares of `nodes` instead of hours. Its memory of
    other tasks and its domain knowledge are left out; the operators' texts, and that drafts four and five come once the
    whole search stands still for twelve nodes, are ours (reconstructed). It needs a policy that reads: the embedded one
    does not.
    """

    card: ClassVar[Card] = Card(
        "mcgs", "Monte Carlo graph search", "2510.08511", 2025,
        "36.4 % average medal rate on MLE-Bench in 12 hours, half of the usual time", ("generate", "control", "replay"),
        "best_of_n",
        Evidence("best value", "UCT with the same edits on separable landscapes",
                 check="rolltree_papers.mcgs.study:separable", seeds=5),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    nodes: int = 32
    """Attempts per prompt, failed ones included."""
    evolution: bool = True
    """Whether a branch that stands still is gone on with in sight of its own path."""
    fusion: bool = True
    """Whether it is shown the other branches' best."""
    aggregation: bool = True
    """Whether a new branch begins from the best of all branches once all stand still."""
    switch: bool = True
    """Whether selection goes over from UCT to the best few nodes between half and 70 % of the search."""
    chains: bool = True
    """Whether what gains is gone on with at once and told upwards at its end."""
    worth: str = "verifier"
    """What an attempt is worth: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    improve: str = TEXTS["improve"]
    """What asks for a better answer; {prompt}, {answer}, {score}, {path}, {siblings}, {references} are filled in."""
    debug: str = TEXTS["debug"]
    """What asks again after an answer that cannot be read."""
    evolve: str = TEXTS["evolve"]
    """What asks with the path in sight."""
    fuse: str = TEXTS["fuse"]
    """What asks with other branches' best in sight."""
    aggregate: str = TEXTS["aggregate"]
    """What begins a branch from the best of all."""
    workers: int = 3
    """Attempts under way at once."""
    final: Literal["vote", "best"] = "best"
    """The answer: most value in all, or the single best attempt's."""

    def build(self) -> Parts:
        """A graph search over attempts."""
        check_group("mcgs", self.nodes)
        rules = McgsRules(evolution=self.evolution, fusion=self.fusion, aggregation=self.aggregation,
                          switch=self.switch, chains=self.chains)  # fmt: skip
        texts = {"improve": self.improve, "debug": self.debug, "evolve": self.evolve, "fuse": self.fuse,
                 "aggregate": self.aggregate}  # fmt: skip
        search = GraphSearch(self.nodes, rules, OperatorTexts(texts), judge_of(self.worth), self.workers, self.final)
        return search_parts("mcgs", search)
