"""Judges that read what is recorded: a part of the verdict, the policy's own confidence, agreement of answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.generate.judge.protocol import Entry, Opinion, Question
from rolltree.generate.signals import mean_logp, step_logps
from rolltree.tree import Node, Tree

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


class MeasureError(RolltreeError, ValueError):
    """A part that nobody measured: names the node and the way out."""


@dataclass(frozen=True, slots=True)
class MeasuredJudge:
    """Reads a part of the leaf's verdict, as exactly as its errors let it: what stands in for a judge that reads texts.

    With all errors at 0 it is that judge without its mistakes.
    """

    part: str = "reward"
    noise: float = 0.0
    """Deviation of each reading."""
    bias: float = 0.0
    """What it adds to the entry it reads first."""
    accuracy: float | None = None
    """Instead of grades: of two entries that differ it prefers the better one at this rate, of equal ones either."""

    @property
    def name(self) -> str:
        """The part and the errors."""
        return f"{self.part} noise={self.noise:g} bias={self.bias:g} accuracy={self.accuracy}"

    @property
    def want(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def calls(self, size: int) -> int:
        """One, where it stands in for a judge that errs."""
        return int(bool(self.noise or self.bias or self.accuracy is not None))

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """The part of each entry, misread."""
        values = [[part_of(entry.tree, entry.node, self.part) for entry in question] for question in questions]
        if self.accuracy is not None:
            return [self._preferred(row, rng) for row in values]
        if not self.noise and not self.bias:
            return values
        most = max(map(len, values), default=0)
        read = self.noise * rng.normal(size=(most, len(values)))
        return [
            [value + float(read[i, q]) + (self.bias if i == 0 else 0.0) for i, value in enumerate(row)]
            for q, row in enumerate(values)
        ]  # fmt: skip

    def _preferred(self, row: Sequence[float], rng: np.random.Generator) -> list[float]:
        """1 for the entry it prefers. Among more than two: the best at that rate, else any other."""
        assert self.accuracy is not None
        best = [i for i, value in enumerate(row) if value == max(row)]
        rest = [i for i in range(len(row)) if i not in best]
        among = best if not rest or rng.random() < self.accuracy else rest
        chosen = among[int(rng.integers(len(among)))]
        return [float(i == chosen) for i in range(len(row))]


@dataclass(frozen=True, slots=True)
class Confidence:
    """The policy's own opinion: the geometric mean probability of what it wrote. No labels, no second model.

    Over the last "step", over the whole "path", or of the "least" likely step on it.
    """

    over: Literal["step", "path", "least"] = "path"
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What it is over."""
        return f"confidence over={self.over}"

    def calls(self, size: int) -> int:
        """None: log-probs are recorded anyway."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """exp of mean log-prob."""
        return [[self._of(entry) for entry in question] for question in questions]

    def _of(self, entry: Entry) -> float:
        path = entry.tree.path(entry.node)
        steps = step_logps(path)
        if not steps:
            return 0.0
        if self.over == "step":
            return float(np.exp(mean_logp(path)))
        if self.over == "path":
            return float(np.exp(np.concatenate(steps).mean()))
        return min(float(np.exp(step.mean())) for step in steps)


Weigh = Literal["leaf", "fork", "posterior", "value"]
"""What a vote counts: 1; a share of its fork's; the chance of being right as seen in flight; the score `value`."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of the votes that each entry's answer has among those it is asked about; NaN without an answer.

    It knows nothing of the truth: what a wrong majority agrees on it holds to be right.
    """

    weigh: Weigh = "leaf"
    silent: bool = False
    """Whether entries without an answer vote for "no answer"."""
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What votes count."""
        return f"agreement weigh={self.weigh} silent={self.silent}"

    def calls(self, size: int) -> int:
        """None: answers are recorded anyway."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Shares of the votes."""
        return [self._of(question) for question in questions]

    def _of(self, question: Question) -> list[float]:
        said = [answer_of(entry.node) for entry in question]
        voters = [e.node for e, answer in zip(question, said, strict=True) if self.silent or answer is not None]
        shares = tally(question[0].tree, voters, self.weigh) if voters else {}
        return [shares.get(a, 0.0) if self.silent or a is not None else float("nan") for a in said]


LEAST = 1e-6
"""Weight of a vote that counts for nothing, so that there is a winner among such votes too."""


def tally(tree: Tree, voters: Sequence[Node], weigh: Weigh, *, best: bool = False) -> dict[str | None, float]:
    """Share of the votes per answer, in order of first appearance; `best` counts an answer's heaviest vote alone."""
    match weigh:
        case "leaf":
            weight = dict.fromkeys((leaf.id for leaf in voters), 1.0)
        case "fork":
            weight = _fork_weights(tree, voters)
        case "posterior":
            weight = _posteriors(tree, voters)
        case "value":
            weight = {leaf.id: leaf.scores.get("value", 1.0) for leaf in voters}
    out: defaultdict[str | None, float] = defaultdict(float)
    for leaf in voters:
        answer = answer_of(leaf)
        out[answer] = max(out[answer], weight[leaf.id]) if best else out[answer] + weight[leaf.id]
    total = sum(out.values())
    return {answer: votes / total if total else 1 / len(out) for answer, votes in out.items()}


def part_of(tree: Tree, leaf: Node, name: str) -> float:
    """A part of a leaf's verdict; one that nobody measured must not look like one that is 0."""
    if name not in leaf.scores:
        raise MeasureError(
            f"node {leaf.id} of tree {tree.id!r} has no part {name!r}; choose a task whose verifier measures it, or "
            "name a part that it has"
        )
    return leaf.scores[name]


def answer_of(leaf: Node) -> str | None:
    """The final answer in normal form; None where none was given."""
    answer = leaf.notes.get("answer")
    return None if answer is None else str(answer)


def _fork_weights(tree: Tree, voters: Sequence[Node]) -> dict[int, float]:
    """Weight of each voter when every fork splits its weight evenly among the children that lead to voters."""
    leading = {node.id for leaf in voters for node in tree.path(leaf)}
    weight = {tree.root.id: 1.0}
    for node in tree.walk():
        ways = [child for child in node.children if child in leading]
        for child in ways:
            weight[child] = weight[node.id] / len(ways)
    return {leaf.id: weight[leaf.id] for leaf in voters}


def _posteriors(tree: Tree, voters: Sequence[Node]) -> dict[int, float]:
    """Each voter's latest chance of being right; one that was never looked at has the mean of those that were."""
    seen = {
        leaf.id: said[-1] for leaf in voters
        if (said := [n.scores["posterior"] for n in tree.path(leaf) if "posterior" in n.scores])
    }  # fmt: skip
    rest = sum(seen.values()) / len(seen) if seen else 1.0
    return {leaf.id: max(seen.get(leaf.id, rest), LEAST) for leaf in voters}
