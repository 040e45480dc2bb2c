"""Search step by step with a frozen policy: score the live paths, keep some, fork those, vote at the end (ETS)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from rolltree.engine.protocol import Embedder
from rolltree.generate.decide import decide, grades
from rolltree.generate.frontier import GrowthRound, grow_rounds
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.selection import Floats, Program, clusters, rebase
from rolltree.generate.signals import SignalError, features
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class StepSearch:
    """ETS's generator (arXiv 2502.13575); `select` chooses between it and what it is compared with.

    `width` paths take one step each (up to a delimiter); then "ets" keeps the paths its program chooses and shares the
    width among them by REBASE, "rebase" shares it among all, "beam" keeps the √width best and forks each evenly, and
    "dvts" splits the first steps into √width subtrees and keeps the best path of each (diverse verifier tree search).
    Finished paths take their place of the width with them. A path's meaning is the mean input embedding of its last
    step's tokens, or the engine's last hidden state there (the paper uses a sentence encoder).
    """

    width: int = 16
    step: int = 16
    """Most tokens of a step (the paper's 256)."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing."""
    scorer: Judge = field(default_factory=Confidence)
    """A judge of single paths: how promising each is, in [0, 1]."""
    select: Literal["ets", "rebase", "beam", "dvts"] = "ets"
    temperature: float = 0.2
    """T of REBASE."""
    economy: float = 1.0
    """λ_b: what the whole tree's nodes would cost."""
    cover: float = 1.5
    """λ_d: what covering all meanings is worth; 0 = without the coverage term."""
    cut: float = 0.05
    """Cosine distance up to which steps mean the same."""
    cost: Literal["nodes", "tokens"] = "nodes"
    """What a kept node costs: 1 each, as published and released, or its tokens."""
    meaning: Literal["tokens", "hidden"] = "tokens"
    rounds: int = 25
    final: Literal["vote", "best"] = "vote"
    """The answer: most value in all, or the single best leaf's."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every step."""
        return self.scorer.want | (frozenset({"hidden"}) if self.meaning == "hidden" else frozenset())

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, and embeddings where meanings are read off them."""
        return features(self.want) | ({"embeddings"} if self.meaning == "tokens" else frozenset())

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Step, score, select, fork; then choose an answer."""
        search = _Search(self, await _table(hand) if self.meaning == "tokens" else None)
        draw: SamplingOptions = {"max_tokens": self.step, "stop": (self.delimiter,) if self.delimiter else ()}
        await grow_rounds(
            hand, leaves=self.width, first=self.width, widths=search.widths, draw=draw, rounds=self.rounds,
            want=self.want, review=search.review, why=f"share of the width by {self.select}",
        )  # fmt: skip
        done = [leaf for leaf in tree.leaves() if leaf.status == "done" and "reward" in leaf.scores]
        for leaf, value in zip(done, await _scores(hand, self.scorer, done), strict=True):
            leaf.scores["value"] = value
        decide(hand, done, self.final)


class _Search:
    """Scores and meanings of the live paths of one round."""

    def __init__(self, knobs: StepSearch, table: Floats | None) -> None:
        self.knobs = knobs
        self.table = table
        self.scores: Sequence[float] = ()

    async def review(self, hand: Hand, live: Sequence[Node]) -> Sequence[Node]:
        """Score the live paths; the rule below decides."""
        self.scores = await _scores(hand, self.knobs.scorer, live)
        return live

    def widths(self, hand: Hand, round: GrowthRound) -> Sequence[int]:
        """How many ways each path goes on."""
        k, width = self.knobs, max(round.leaves - round.finished, 1)
        kept = self._kept(hand, round.live, width)
        chosen = [i for i, keep in enumerate(kept) if keep]
        if k.select in ("beam", "dvts"):
            each, more = divmod(width, len(chosen))
            ways = [each + (n < more) for n in range(len(chosen))]
        else:
            ways = rebase([self.scores[i] for i in chosen], width, k.temperature)
        out = [0] * len(round.live)
        for i, way in zip(chosen, ways, strict=True):
            out[i] = way
        why = f"{k.select} keeps {sum(way > 0 for way in out)} of {len(out)} paths"
        scores = [float(f"{score:.4g}") for score in self.scores]
        hand.event("select", None, why, round=round.number, width=width, scores=scores, ways=out)
        return out

    def _kept(self, hand: Hand, live: Sequence[Node], width: int) -> Sequence[bool]:
        k = self.knobs
        if k.select == "rebase" or len(live) == 1:
            return [True] * len(live)
        if k.select == "beam":
            best = sorted(range(len(live)), key=lambda i: (-self.scores[i], i))[: max(int(k.width**0.5), 1)]
            return [i in best for i in range(len(live))]
        if k.select == "dvts":
            return self._best_of_subtrees(hand, live)
        counts = np.asarray(rebase(self.scores, width, k.temperature), np.float64)
        paths = [hand.tree.path(node) for node in live]
        price = {n.id: float(len(n)) if k.cost == "tokens" else 1.0 for path in paths for n in path}
        program = Program(
            counts / counts.sum(), [[n.id for n in path[:-1]] for path in paths], [price[n.id] for n in live],
            [[price[n.id] for n in path[:-1]] for path in paths], self._clusters(hand, live), k.economy, k.cover,
        )  # fmt: skip
        return [bool(x) for x in program.solve()]

    def _best_of_subtrees(self, hand: Hand, live: Sequence[Node]) -> Sequence[bool]:
        """The best live path of each subtree: so many consecutive first steps as a path has ways on."""
        size = -(-self.knobs.width // max(int(self.knobs.width**0.5), 1))
        first = {node.id: rank // size for rank, node in enumerate(hand.tree.children(hand.tree.root))}
        subtree = [first[hand.tree.path(node)[1].id] for node in live]
        best: dict[int, int] = {}
        for i, s in enumerate(subtree):
            if s not in best or self.scores[i] > self.scores[best[s]]:
                best[s] = i
        return [i == best[s] for i, s in enumerate(subtree)]

    def _clusters(self, hand: Hand, live: Sequence[Node]) -> Sequence[int]:
        steps = [
            next((n for n in reversed(hand.tree.path(node)) if n.role == "policy" and len(n)), node) for node in live
        ]
        if len({step.actions.tobytes() for step in steps}) == 1:
            return [0] * len(live)
        if self.table is None:
            return clusters(np.array([hand.hidden(step) for step in steps]), self.knobs.cut)
        return clusters(np.array([self.table[step.actions].mean(0) for step in steps]), self.knobs.cut)


async def _scores(hand: Hand, scorer: Judge, nodes: Sequence[Node]) -> Sequence[float]:
    """Grades to six places: the last bits of a log-prob change with the batch that it was computed in, and paths that
    wrote the same must not be told apart by them."""
    return [round(grade, 6) for grade in await grades(hand, scorer, nodes)]


async def _table(hand: Hand) -> Floats:
    if not isinstance(hand.engine, Embedder):
        raise SignalError(
            f"{type(hand.engine).__name__} shows no embeddings; let meaning='hidden' read the hidden states instead"
        )
    return (await hand.engine.embeddings()).astype(np.float64)
