"""TreeCUA: exploration of graphical interfaces as trees (arXiv 2602.09662)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from rolltree.generate.choose import decide, grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.search.graph import TRIED, Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search
from rolltree.generate.search.proposals import ProposalRules, ProposedActions
from rolltree.generate.search.select import untried
from rolltree.generate.search.steps import finished, judge_of
from rolltree.generate.signals import features
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree

# TreeCUA: an environment explored as a tree of actions, of which some wait for a later path (arXiv 2602.09662).
#
# A path starts at a proposal that nobody took, goes on with one of the new proposals by chance, and ends where a step
# goes wrong, the episode ends, or it is long enough. What stands beside it stays open for the paths after it. The rules
# know nothing of screens; `ExploredActions` puts a policy's turns behind them, the authors' study
# (`rolltree_papers.treecua.study`) a graph of screens that is played again from its first one.

Order = Literal["random", "deep", "shallow", "hybrid"]
UNEXPLORED = "left unexplored"
"""Why proposals are given up in the end."""


@dataclass(frozen=True, slots=True)
class ExploreRules:
    """Knobs of the exploration; defaults are the released ones where there are any."""

    paths: int = 8
    """Paths of a tree: it closes after so many, or when nothing is open."""
    steps: int = 20
    """Most actions of a path, those it shares included."""
    ways: tuple[int, int, int] = (10, 6, 3)
    """Most proposals for the first two steps, up to the tenth, and behind it."""
    order: Order = "hybrid"
    """Where a path starts: anywhere, deepest or shallowest first, or first at the first two steps while more than three
    are left to do, then anywhere."""

    def wide(self, node: SearchNode[Any]) -> int:
        """Proposals below a node."""
        step = node.depth + 1
        return self.ways[0 if step <= 2 else 1 if step <= 10 else 2]


class Exploration:
    """The plan: one action a turn."""

    def __init__(self, rules: ExploreRules) -> None:
        self.rules = rules
        self.tip: SearchNode[Any] | None = None
        """Where the path under way stands."""
        self.begun = 0

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """The next action of the path, or the first one of the next path."""
        root = moment.graph.root
        if untried(root):
            return [Move(root, "propose")]
        open_ = [] if self.tip is None else [child for child in self.tip.children if untried(child)]
        if open_:
            return [Move(open_[int(moment.rng.integers(len(open_)))], "do")]
        if self.begun >= self.rules.paths:
            return []
        node = self.start(
            [n for n in moment.graph if n.parent is not None and untried(n) and n.depth <= self.rules.steps], moment
        )
        if node is None:
            return []
        self.begun += 1
        return [Move(node, "start")]

    def start(self, waiting: Sequence[SearchNode[Any]], moment: Moment[Any]) -> SearchNode[Any] | None:
        """Where the next path starts."""
        order = self.rules.order
        if order == "hybrid":
            early = [n for n in waiting if n.depth <= 2 and self.rules.steps - n.depth > 3]
            waiting = early or waiting
        elif order != "random" and waiting:
            depth = (max if order == "deep" else min)(n.depth for n in waiting)
            waiting = [n for n in waiting if n.depth == depth]
        return waiting[int(moment.rng.integers(len(waiting)))] if waiting else None

    def backup(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
        """Nothing is told upwards; the path stands at what was done, unless it has ended there."""
        node = move.node
        node.notes[TRIED] = True
        root, over = node.parent is None, node.closed or node.depth >= self.rules.steps or node not in nodes
        self.tip = None if root or over else node


@dataclass(frozen=True, slots=True)
class ExploredActions:
    """Explores one tree for an item; every path is a rollout with its own outcome."""

    rules: ExploreRules = field(default_factory=ExploreRules)
    proposals: ProposalRules = field(default_factory=ProposalRules)
    grader: Judge | None = None
    """Grades a step by what stands before and after it; None = the environment's word on whether it failed."""
    least: float = 0.5
    """A step graded below it has gone wrong."""

    @property
    def want(self) -> frozenset[str]:
        """What the judges read."""
        return self.proposals.judge.want | (frozenset[str]() if self.grader is None else self.grader.want)

    @property
    def needs(self) -> frozenset[str]:
        """An environment, and places in it to come back to."""
        return features(self.want) | {"turns", "snapshot"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Explore, and give up what is left open."""
        world = _Explorer(self, hand)
        plan = Exploration(self.rules)
        graph = SearchGraph(tree.root)
        await search(
            plan, graph, world.make, turns=1 + self.rules.paths * self.rules.steps,
            rng=lambda turn: hand.rng.child("search", turn).generator(),
        )  # fmt: skip
        world.give_up(graph, UNEXPLORED)
        await world.play_on(plan.tip or graph.root)
        hand.event("note", None, "explored", paths=plan.begun, actions=sum(bool(n.notes.get(TRIED)) for n in graph) - 1,
                   went_wrong=world.wrong, proposed=len(graph) - 1)  # fmt: skip
        decide(hand, finished(tree), "vote")


class _Explorer(ProposedActions):
    """Proposals by the step, and steps that may have gone wrong."""

    def __init__(self, knobs: ExploredActions, hand: Hand) -> None:
        super().__init__(hand, knobs.proposals, knobs.rules.wide)
        self.knobs = knobs
        self.wrong = 0

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
        """As of `ProposedActions`; a place where the path has ended is closed and verified."""
        node = moves[0].node
        if node.parent is None:
            return await super().make(moves)
        place = await self.do(node.payload)
        if place is None:
            return None
        if place.status == "open" and (why := await self.ended(node, place)):
            self.hand.close(place, "stop", why)
            await self.hand.verify(place)
        out = [self.done(place)]
        if place.status == "open":
            out += await self.propose(place, self.ways(node))
        return [out]

    async def ended(self, node: SearchNode[Node], place: Node) -> str:
        """Why the path ends here; "" = it does not."""
        knobs, failed = self.knobs, bool(place.notes.get("failed"))
        if knobs.grader is not None and not failed:
            failed = (await grades(self.hand, knobs.grader, [place]))[0] < knobs.least
        self.wrong += failed
        return "the step went wrong" if failed else "long enough" if node.depth >= knobs.rules.steps else ""


@dataclass(frozen=True, slots=True)
class TreeCua:
    """Paths through an environment that start at what earlier paths left open, so that the tree grows where it is thin.

    Numbers of proposals, orders and the choice by chance are those of the released code. A step has gone wrong where
    the environment says so, or a judge of the step. A place is come back to as everywhere here: copied, or played again
    and checked against what it said, which is the paper's replay with its divergence. `rolltree labels --kind dpo`
    writes the pairs of siblings: of two actions at one place the one with the better paths behind it (reconstructed).
    Left out are the balance of categories, which is the order of items, starts forbidden because of other trees, and
    the scoring of paths afterwards. Paths of a tree are made one after the other instead of by several workers.
    """

    card: ClassVar[Card] = Card(
        "treecua", "Tree-structured exploration", "2602.09662", 2026,
        "5.5 to 34.6 % on OSWorld by fine-tuning on explored paths, 36.6 with pairs of siblings (Qwen2.5-VL-7B)",
        ("generate", "filter", "control"), "grpo",
        Evidence("different actions seen", "independent episodes of as many actions",
                 check="rolltree_papers.treecua.study:explored", seeds=5),
        counter=Counter("rollout/pruned/left unexplored"),
    )  # fmt: skip
    paths: int = 8
    """Paths of a tree."""
    most_actions: int = 20
    """Most actions of a path."""
    first_ways: int = 10
    """Proposals for each of the first two actions."""
    ways: int = 6
    """Proposals up to the tenth."""
    last_ways: int = 3
    """Proposals behind it."""
    order: Literal["random", "deep", "shallow", "hybrid"] = "hybrid"
    """Where a path starts: anywhere open, deepest or shallowest first, or at the first two actions, then anywhere."""
    grader: str = ""
    """Who says whether a step went wrong: path, step or least (confidence), or head:FILE; "" = the environment."""
    least: float = 0.5
    """A step graded below it went wrong."""

    def build(self) -> Parts:
        """An exploration; its paths are a group."""
        check_group("treecua", self.paths)
        if min(self.most_actions, self.first_ways, self.ways, self.last_ways) < 1:
            raise RecipeError(
                f"treecua: most_actions={self.most_actions}, first_ways={self.first_ways}, ways={self.ways} and "
                f"last_ways={self.last_ways} are 1 or more"
            )
        if self.order not in ("random", "deep", "shallow", "hybrid"):
            raise RecipeError(f"treecua: order={self.order!r} is none of random, deep, shallow and hybrid")
        rules = ExploreRules(self.paths, self.most_actions, (self.first_ways, self.ways, self.last_ways), self.order)
        grader = judge_of(self.grader) if self.grader else None
        return search_parts("treecua", ExploredActions(rules, ProposalRules(self.ways, tries=0), grader, self.least))
