"""MCGS over whole answers: what its rules ask of a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rolltree.engine.protocol import Engine
from rolltree.generate.decide import decide, grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence, answer_of
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.judge.recorded import ReadsJudge
from rolltree.generate.methods.mcgs import Mcgs, McgsRules
from rolltree.generate.needs import refuse_environment
from rolltree.generate.scorers import Verified
from rolltree.generate.search.attempts import OperatorTexts, attempt
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search, streams
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree

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
