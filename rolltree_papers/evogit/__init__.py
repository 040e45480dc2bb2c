"""EvoGit: decentralised evolution on a commit graph (BillHuang2001/evogit)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from rolltree.engine.protocol import Engine
from rolltree.generate.choose import decide
from rolltree.generate.hand import Hand
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Judge, ReadsJudge, entries
from rolltree.generate.judge.votes import Votes, winner
from rolltree.generate.search.attempts import OperatorTexts, attempt, said
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search, streams
from rolltree.generate.strategy import refuse_environment
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.recipe.searching import search_parts
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree

# EvoGit: a population that is edited, compared in pairs, and merged (BillHuang2001/evogit).
#
# Every individual is edited, and the edit takes its place where a judge prefers it; every third time individuals are
# paired, and what two of them give takes the place of both where it is preferred to both. Nothing has a score. The
# rules know nothing of what an individual is: `rolltree_papers.evogit` puts answers behind them, the authors' study
# (`rolltree_papers.evogit.study`) vectors of an exact landscape.

Anode = SearchNode[Any]
BETTER = "better"
"""Key in a new node's notes: whether it was preferred to its parent, and to its reference."""


@dataclass(frozen=True, slots=True)
class EvoGitRules:
    """Knobs of the population."""

    population: int = 16
    every: int = 3
    """Each so many-th generation merges instead of editing; 0 = none does."""


class EvoGit:
    """The plan: a turn is a generation, all of its moves at once."""

    def __init__(self, rules: EvoGitRules) -> None:
        self.rules = rules
        self.alive: list[Anode] = []
        self.replaced = {"mutate": 0, "merge": 0}
        """How often an offspring took a place."""

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """Drafts, then edits of all, or merges of random pairs."""
        if not self.alive:
            return [Move(moment.graph.root, "draft")] * self.rules.population if moment.turn == 0 else []
        if not self.rules.every or moment.turn % self.rules.every:
            return [Move(node, "mutate") for node in self.alive]
        order = [self.alive[int(i)] for i in moment.rng.permutation(len(self.alive))]
        pairs = zip(order[::2], order[1::2], strict=False)
        return [Move(a, "merge", (b,)) for a, b in pairs if novel(a, b)] or [Move(n, "mutate") for n in self.alive]

    def backup(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[Anode]) -> None:
        """Who is preferred takes the place; of a merge that is preferred to both, in place of both."""
        for node in nodes:
            if move.operator == "draft":
                self.alive.append(node)
            elif node.notes.get(BETTER):
                olds = {move.node.id, *(other.id for other in move.references)}
                self.alive = [node if old.id in olds else old for old in self.alive]
                self.replaced[move.operator] += 1


def novel(a: Anode, b: Anode) -> bool:
    """Whether a merge could give anything new: neither is made of the other."""
    return a is not b and a not in lineage(b) and b not in lineage(a)


def lineage(node: Anode) -> set[Anode]:
    """The node and all it was made of, along parents and references."""
    seen, open_ = set[Anode](), [node]
    while open_:
        here = open_.pop()
        if here not in seen:
            seen.add(here)
            open_.extend(here.references)
            if here.parent is not None:
                open_.append(here.parent)
    return seen


# EvoGit over whole answers: a policy edits and merges, a judge compares in pairs.


@dataclass(frozen=True, slots=True)
class PopulationOfAnswers(ReadsJudge):
    """Grows a population for so many generations; the answer is the one that most of those who are left give.

    Every answer is written after the prompt and the operator's text alone, so contexts do not grow with generations;
    what it was made from stands in its notes.
    """

    generations: int = 6
    rules: EvoGitRules = field(default_factory=EvoGitRules)
    texts: OperatorTexts = field(default_factory=lambda: OperatorTexts({}))
    judge: Judge = field(default_factory=lambda: Votes(Likelihood(), 1, "swapped"))
    """Compares a new answer with the one it was made from."""

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: an answer is one run of tokens."""
        refuse_environment(task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Drafts, generations, and a vote of those who are left."""
        plan = EvoGit(self.rules)

        async def make(moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
            made = [await self.made(tree, hand, move) for move in moves]
            return None if all(one is None for one in made) else [one or [] for one in made]

        graph: SearchGraph[Node] = SearchGraph(tree.root)
        await search(
            plan, graph, make, turns=self.generations + 1,
            rng=streams(hand),
        )  # fmt: skip
        hand.event("note", None, "offspring that took a place", **plan.replaced)
        decide(hand, [node.payload for node in plan.alive if node.payload.status == "done"], "vote")

    async def made(self, tree: Tree, hand: Hand, move: Move[Node]) -> list[Made[Node]] | None:
        """An answer by a move, compared with what it was made from; None where the budget has ended."""
        text = self.texts(hand, move)
        olds = () if move.operator == "draft" else (move.node, *move.references)
        place = Move(SearchNode(-1, None, tree.root), move.operator, olds)
        grown = await attempt(hand, place, lambda hand, move: text, want=self.want)
        if not grown or not olds:
            return [replace(one, closed=False) for one in grown if one.value is not None] if grown else grown
        better = all([await self.preferred(hand, grown[0], old) for old in olds])
        grown[0].payload.notes[BETTER] = better
        return [replace(grown[0], notes={BETTER: better})]

    async def preferred(self, hand: Hand, made: Made[Node], old: SearchNode[Node]) -> bool:
        """Whether the new answer may take the old one's place; the same answer may, what says nothing may not."""
        new = SearchNode(-1, None, made.payload)
        if made.value is None:
            return False
        if said(new) == said(old):
            return True
        (opinion,) = await hand.judge(self.judge, [entries(hand, [made.payload, old.payload])], about="an edit")
        return opinion is not None and winner(opinion) == 0


@dataclass(frozen=True, slots=True)
class EvoGitRecipe:
    """A population of answers, edited one by one and merged in pairs; a judge that compares two decides who stays.

    No answer has a score. Rules of replacement are those of the released code: an edit takes its parent's place where
    it is preferred or the same, a merge the places of both where it is preferred to both, and only what is not made of
    one another is merged; a round without such a pair edits instead (reconstructed). Individuals are answers instead of
    commits, and a merge is written with the other in sight instead of resolving hunks by chance; texts, and the vote at
    the end in place of a person's choice, are reconstructed. The judge is the policy's likelihood in both orders;
    `judge="measured"` is one of a known accuracy.
    """

    card: ClassVar[Card] = Card(
        "evogit", "Evolution on a commit graph", "EvoGit", 2025,
        "two case studies without numbers: a web application and a meta-solver for bin packing",
        ("generate", "filter", "replay"), "best_of_n",
        Evidence("mean value", "the same edits without merges on separable landscapes",
                 check="rolltree_papers.evogit.study:merges", seeds=5),
        counter=Counter("budget/judge_calls"),
    )  # fmt: skip
    population: int = 8
    """Answers that live side by side (16 in the released code)."""
    generations: int = 6
    """Rounds in which all are edited, or merged (120 in the released code)."""
    every: int = 3
    """Each so many-th round merges; 0 = none does."""
    judge: Literal["likelihood", "measured"] = "likelihood"
    """Who compares: the policy by the likelihood of the text, or a stand-in of known quality that sees the outcome."""
    accuracy: float = 0.65
    """Of the measured judge, between a right and a wrong answer."""
    mutate: str = "\n[{answer}] {prompt}"
    """Asks for an edit; {prompt}, {answer} and {references} are filled in."""
    merge: str = "\n[{answer}; {references}] {prompt}"
    """Asks for a merge."""

    def build(self) -> Parts:
        """A population."""
        check_group("evogit", self.population)
        if self.generations < 0 or self.every < 0:
            raise RecipeError(f"evogit: generations={self.generations} and every={self.every} count rounds; 0 or more")
        reader = Likelihood() if self.judge == "likelihood" else MeasuredJudge(accuracy=self.accuracy)
        return search_parts("evogit", PopulationOfAnswers(
            self.generations, EvoGitRules(self.population, self.every),
            OperatorTexts({"mutate": self.mutate, "merge": self.merge}), Votes(reader, 1, "swapped"),
        ))  # fmt: skip
