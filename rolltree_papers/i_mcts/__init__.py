"""I-MCTS: introspective Monte Carlo tree search (arXiv 2502.14693)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rolltree.generate.search.backup import tell
from rolltree.generate.search.graph import TRIED, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment
from rolltree.generate.search.queues import flattest
from rolltree.generate.search.select import UCT, Descend, Select, untried
from rolltree.generate.search.steps import StepTree, judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts
from rolltree.recipe.searching import search_parts

# I-MCTS's selection (arXiv 2502.14693): values from before any run fade out as results come in.
#
# A node is first only proposed, with a prior; going to it means running it and proposing its children, one after the
# other, each with its earlier siblings in sight. The descent is from the root; the released code takes the largest
# score over all nodes instead (`flat`).


class Introspective:
    """The plan: a turn runs one proposed node. w = c_v/(n + c_v) with c_v = 0.2; an untried node has n = 0.2; c = 2."""

    def __init__(self, runs: int, *, c: float = 2.0, prior: float = 0.2, flat: bool = False) -> None:
        self.runs = runs
        score = UCT(c, prior=prior, unvisited=0.2)
        self.select: Select = flattest(untried, score) if flat else Descend(untried, score)
        self._begun = 0

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """Run the next node, the root first."""
        node = self.select(moment) if self._begun < self.runs else None
        if node is None:
            return []
        self._begun += 1
        return [Move(node, "run")]

    def backup(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
        """A run's value goes to the node and all above it; a failed one counts 0. Proposals tell nothing."""
        for node in nodes:
            if node is move.node:
                node.notes[TRIED] = True
                tell(node, 0.0 if node.value is None else node.value)


@dataclass(frozen=True, slots=True)
class IMcts:
    """UCT whose values begin as a prior and go over to results: w·v + (1 − w)·mean with w = c_v/(n + c_v).

    The paper edits pipelines and asks a model to grade each plan; here the steps are the policy's own, the prior is its
    confidence in a step, and siblings differ because twins are merged, not because they were shown to one another
    (reconstructed). `Introspective` is the paper's order of proposing and running, held against exact pipelines by the
    check. An untried child has n = c_v, so the prior orders them.
    """

    card: ClassVar[Card] = Card(
        "i_mcts", "Introspective Monte Carlo tree search", "2502.14693", 2025,
        "6 % absolute over strong open AutoML agents on ML tasks", ("generate", "filter", "control"), "mcts",
        Evidence("best worth", "plain UCT, as many runs", least=0.01, seeds=5,
                 check="rolltree_papers.i_mcts.study:imcts"),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    turns: int = 16
    """Expansions."""
    ways: int = 5
    """Steps tried at a node."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing."""
    worth: str = "path"
    """What a path is worth: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    rollouts: int = 1
    """Completions from every new node; 0 = the judge's opinion of the node itself."""
    prior: float = 0.2
    """c_v of the blend, and n of a child that was not tried; 0 = plain UCT."""
    exploration: float = 2.0
    """c of UCT."""
    final: Literal["vote", "best"] = "best"
    """The answer: most value in all, or the single best leaf's."""

    def build(self) -> Parts:
        """A descent by the blended values."""
        tree = StepTree(
            self.turns, self.ways, "uct", self.step, self.delimiter, judge_of(self.worth), self.rollouts,
            self.exploration, prior=self.prior, final=self.final,
        )  # fmt: skip
        return search_parts("i_mcts", tree)
