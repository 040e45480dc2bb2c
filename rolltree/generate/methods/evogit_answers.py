"""EvoGit over whole answers: a policy edits and merges, a judge compares in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rolltree.engine.protocol import Engine
from rolltree.generate.decide import decide
from rolltree.generate.hand import Hand
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.protocol import Judge, entries
from rolltree.generate.judge.recorded import ReadsJudge
from rolltree.generate.judge.votes import Votes, winner
from rolltree.generate.methods.evogit import BETTER, EvoGit, EvoGitRules
from rolltree.generate.needs import refuse_environment
from rolltree.generate.search.attempts import OperatorTexts, attempt, said
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search, streams
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


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
