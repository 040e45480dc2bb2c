"""Guesses for a batch: keeps the drafter informed, grows the trees, and counts what came of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.batch import DecodeBatch
from rolltree.engine.local.run import LocalRun
from rolltree.engine.local.sampling import uniforms
from rolltree.engine.local.speculate.control import GuessControl
from rolltree.engine.local.speculate.drafter import REACH, DraftAsk, Drafter, Lead, Seen
from rolltree.engine.local.speculate.shapes import Growth, GuessShape, Space
from rolltree.engine.local.speculate.spec import Speculation, Target
from rolltree.engine.local.speculate.tree import Drafts, DraftTree, Guess, Ints
from rolltree.policy.decoder import TokenTree
from rolltree.policy.slab import Slab

LOG = logging.getLogger("rolltree.engine")


@dataclass(slots=True)
class SpeculationCounts:
    """What came of it so far."""

    forwards: int = 0
    """Decoding steps, guessed in or not."""
    rows: int = 0
    """Rows of those steps: the tokens that would have come without guessing."""
    drafted: int = 0
    accepted: int = 0
    trained: int = 0
    """Training steps of the drafter."""

    @property
    def acceptance(self) -> float:
        """Share of guesses that were right; 0 where nothing was guessed."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def per_row(self) -> float:
        """Tokens per request and decoding step; 1 without guessing."""
        return 1 + self.accepted / self.rows if self.rows else 1.0


@dataclass(slots=True)
class Speculator:
    """Guesses for a batch and follows what became of it."""

    how: Speculation
    target: Target
    counts: SpeculationCounts = field(default_factory=SpeculationCounts)
    control: GuessControl = field(init=False)
    drafter: Drafter = field(init=False)
    _names: dict[LocalRun, tuple[int, int]] = field(default_factory=dict[LocalRun, tuple[int, int]])
    """Of each run inside: its key, and how much of its text is known to the drafter."""
    _next: int = 0
    _asked: int = 0
    """Rows for which the drafter computed something in this step."""
    _untaught: bool = False
    """Training has failed."""

    def __post_init__(self) -> None:
        self.control, self.drafter = self.how.control(), self.how.made(self.target)

    def draft(self, batch: DecodeBatch, columns: int) -> Drafts | None:
        """Guesses for all rows; None where there are none. A row has so many columns, its text's included."""
        self.counts.forwards += 1
        self.counts.rows += len(batch)
        self._follow(batch)
        shape = self.control.shape(len(batch))
        self._asked = len(batch) if shape is not None and self.drafter.computes else 0
        return None if shape is None else Drafts.of(self._grown(batch, shape, columns))

    def judge(self, drafts: Drafts | None, accepted: int, tokens: int, *, clean: bool) -> None:
        """What became of a step."""
        self.counts.drafted += 0 if drafts is None else int(drafts.count.sum())
        self.counts.accepted += accepted
        tried = self._asked if drafts is None else drafts.deepest
        self.control.judge(tried, accepted, tokens, clean=clean)

    def saw(
        self, batch: DecodeBatch, rows: range, lengths: Ints, drafts: Drafts | None, paths: list[list[int]],
        hidden: Tensor,
    ) -> None:  # fmt: skip
        """Show the drafter what was read: rows of texts that then had these lengths, and the guesses below them."""
        if not self.drafter.watches or not len(rows):
            return
        self._follow(batch)
        last = lengths - 1
        at = np.asarray(rows)
        before = np.where(last > 0, batch.ids[at, np.maximum(last - 1, 0)], -1).tolist()
        keys = [self._names[batch.runs[row]][0] for row in rows]
        first = batch.ids[at, last].tolist()
        self.drafter.saw(Seen(keys, before, first, drafts, paths, hidden, self.target.decoder.logits))

    def learn(self) -> bool:
        """One step of training the drafter; False where there is nothing to learn."""
        if self._untaught:
            return False
        try:
            done = self.drafter.learn()
        except Exception:  # it is not needed for anything that is asked; what it has learned so far goes on guessing
            LOG.exception("The drafter could not be trained any further; it goes on with what it has learned.")
            self._untaught, done = True, False
        self.counts.trained += done
        return done

    def gone(self, run: LocalRun, text: Ints) -> None:
        """A run has left the batch with this text, prefix included."""
        if (known := self._names.pop(run, None)) is not None:
            key, length = known
            if len(text) > length:
                self.drafter.written(key, text[max(0, length - REACH) :].tolist(), len(text) - length)
            self.drafter.ended(key)

    def clear(self) -> None:
        """Nobody is inside any more."""
        for key, _ in self._names.values():
            self.drafter.ended(key)
        self._names = {}

    def _follow(self, batch: DecodeBatch) -> None:
        """Tell the drafter of who is new and of what was written since the last step."""
        for row, run in enumerate(batch.runs):
            length = int(batch.length[row])
            known = self._names.get(run)
            if known is None:
                known = self._next, length
                self._next += 1
                self.drafter.begin(known[0], batch.ids[row, :length].tolist())
            elif length > known[1]:
                reach = max(0, known[1] - REACH)
                self.drafter.written(known[0], batch.ids[row, reach:length].tolist(), length - known[1])
            self._names[run] = known[0], length

    def _grown(self, batch: DecodeBatch, shape: GuessShape, columns: int) -> list[DraftTree]:
        """A tree for every row; all grow side by side, so that the drafter is asked for all at once."""
        trees = [DraftTree() for _ in batch.runs]
        growing = dict[int, Growth]()
        wanted = dict[int, list[tuple[int, int]]]()
        for row, tree in enumerate(trees):
            space = self._space(batch, row, columns)
            if space is not None:
                growing[row] = shape.grow(tree, space)
                _go_on(growing, wanted, row, None)
        while growing:
            asks = [ask for row, nodes in wanted.items() for ask in self._asks(batch, row, trees[row], nodes)]
            answers = iter(self.drafter.propose(asks) if asks else [])
            for row in list(growing):
                _go_on(growing, wanted, row, [next(answers) for _ in wanted[row]])
        return trees

    def _space(self, batch: DecodeBatch, row: int, columns: int) -> Space | None:
        run, length = batch.runs[row], int(batch.length[row])
        depth = int(batch.limit[row]) - length - 1
        if depth < 1 or run.hidden:  # a state is reported of the token that was read last
            return None
        return Space(depth, columns - length - 1, self._lead(self._names[run][0]))

    def _lead(self, key: int) -> Callable[[int], Lead | None]:
        return lambda most: self.drafter.lead(key, most)

    def _asks(self, batch: DecodeBatch, row: int, tree: DraftTree, nodes: list[tuple[int, int]]) -> list[DraftAsk]:
        run, length = batch.runs[row], int(batch.length[row])
        tail = batch.ids[row, max(0, length - REACH) : length].tolist()
        paths = [tree.path(node) for node, _ in nodes]
        counter = length - int(batch.begin[row]) + np.array([len(path) for path in paths], np.int64)
        numbers = uniforms(np.full(len(paths), batch.key[row], np.uint64), counter).tolist()
        key, sampling = self._names[run][0], run.request.sampling
        return [
            DraftAsk(key, tail, path, most, number, sampling)
            for path, (_, most), number in zip(paths, nodes, numbers, strict=True)
        ]


def _go_on(
    growing: dict[int, Growth], wanted: dict[int, list[tuple[int, int]]], row: int, answers: list[list[Guess]] | None
) -> None:
    """Let a tree grow up to where it asks again; a tree that is done leaves both."""
    try:
        wanted[row] = next(growing[row]) if answers is None else growing[row].send(answers)
    except StopIteration:
        del growing[row]
        wanted.pop(row, None)


def why_no_trees(target: Target) -> str:
    """What a model cannot do that trees of guesses need; "" if nothing."""
    decoder = target.decoder
    ids = (torch.tensor([[3, 1, 4, 1, 5]], device=decoder.device) * 7 + 2) % decoder.vocab_size
    none = torch.zeros(1, dtype=torch.long, device=decoder.device)
    with torch.inference_mode():
        plain = [decoder.extend(ids[:, order], none, None, 4)[0, -1] for order in ([0, 1, 2, 3], [0, 1, 2, 4])]
        slab = Slab.zeros(decoder.shapes, 1, 6, decoder.dtype, decoder.device)
        decoder.extend(ids[:, :2], none, slab, 6)
        seen = torch.tensor([[[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 0]]], dtype=torch.bool)
        where = TokenTree(torch.tensor([[2, 3, 3]], device=decoder.device), seen.to(decoder.device))
        got = decoder.extend(ids[:, [2, 3, 4]], none + 2, slab, 6, where)[0, 1:]
    tolerance = 1e-3 if decoder.dtype in (torch.float32, torch.float64) else 5e-2
    same = torch.allclose(got, torch.stack(plain), rtol=tolerance, atol=tolerance)
    return "" if same else "its forward over the branches of a tree differs from that over each branch alone"
