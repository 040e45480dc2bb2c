"""The engine without its thread: who is inside, one step for all of them, and what ended.

One step admits what fits, reads new prefixes, reads the last token of everybody else, and draws one token for all in
one go. Rows that end leave their keys and values to the prefix cache, so whoever continues them pays one token.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.admit import AdmissionLimits, Ranks, Room, is_shortage, room_for, smaller, wave
from rolltree.engine.local.batch import DecodeBatch, Ints
from rolltree.engine.local.choose import choose
from rolltree.engine.local.common_prefixes import LEVELS, CommonPrefix, CommonPrefixes
from rolltree.engine.local.endings import Ending, blamed, endings_of
from rolltree.engine.local.prefill import read, seat
from rolltree.engine.local.prefix import Ids, PrefixCache, PrefixCounts
from rolltree.engine.local.run import LocalRun
from rolltree.engine.local.sampling import wide
from rolltree.engine.local.speculate import Speculator
from rolltree.engine.local.speculate.tree import Drafts, settle
from rolltree.engine.local.speculate.tree import read as read_ahead
from rolltree.engine.local.stops import StopTables
from rolltree.engine.protocol import Caches, Codec, EngineError, Sample
from rolltree.engine.samples import nothing
from rolltree.policy.decoder import Decoder
from rolltree.policy.graphs import RecordedSteps
from rolltree.policy.shared import Shared
from rolltree.policy.slab import Slab
from rolltree.tree.node import Finish, FloatArray

LOG = logging.getLogger("rolltree.engine")
Outcome = tuple[LocalRun, Sample | EngineError, Sample | None]

_STEP = 32
"""The slab grows by this many columns: fewer are copied more often, more are read for nothing."""
_STEP_RECORDED = 128
"""The same where steps are recorded, which every change of the shape undoes."""


@dataclass(slots=True)
class News:
    """What a step brought: runs that ended (with what no increment has shown), and increments of streamed runs."""

    ended: list[Outcome] = field(default_factory=list[Outcome])
    parts: list[tuple[LocalRun, Sample]] = field(default_factory=list[tuple[LocalRun, Sample]])


class Core:
    """All state of an engine. Not thread-safe; its worker is the only one to call it.

    Whatever raises, every run that was taken ends or waits on: out of memory puts those inside back into the queue with
    what they have and lets in fewer; anything else ends all with an error, and later requests start afresh.
    """

    def __init__(
        self, decoder: Decoder, codec: Codec, limits: AdmissionLimits, version: int,
        speculator: Speculator | None = None, *, cuda_graphs: bool = True,
    ) -> None:  # fmt: skip
        self.decoder, self.limits, self.version, self.speculator = decoder, limits, version, speculator
        self.queue: deque[LocalRun] = deque()
        self.batch = DecodeBatch(decoder.vocab_size, limits.max_top, LEVELS)
        self._stops = StopTables(codec, decoder.vocab_size)
        self.prefixes = PrefixCounts()
        self._cache = self._new_cache()
        self._slab = Slab.zeros(decoder.shapes, 0, 0, decoder.dtype, decoder.device)
        self.commons = CommonPrefixes(decoder, limits.commons)
        self._shared: Shared | None = None
        """What those inside share, as long as they stay the same."""
        self._room = Room(0, 0)
        """What is reserved; the slab is only as wide as what is in it."""
        self._joining: list[LocalRun] = []
        """Out of the queue in the present step; in the batch as well from some point on."""
        self._ranks = Ranks()
        self.graphs = RecordedSteps.of(decoder) if cuda_graphs else None
        """Recorded steps of a card; None elsewhere."""
        self.steps = 0
        """Steps begun, by which others see that it goes on."""

    def _new_cache(self) -> PrefixCache:
        d = self.decoder
        return PrefixCache(d.shapes, self.limits.cache, d.dtype, d.device, self.prefixes)

    @property
    def kept(self) -> PrefixCache:
        """The prefixes that it keeps."""
        return self._cache

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.queue) or len(self.batch) > 0

    def step(self) -> News:
        """Admit, read, draw one token for every row, and let go of those that end."""
        self.steps += 1
        return self._guarded(self._advance)

    def submit(self, runs: list[LocalRun]) -> None:
        """Queue runs: those of the affinity first that was first here, so that trees are ended and not only begun."""
        for run in runs:
            run.rank = self._ranks.rank(run.request.affinity)
        late = bool(self.queue) and min(run.rank for run in runs) < self.queue[-1].rank
        self.queue.extend(runs)
        if late or len(runs) > 1:
            self.queue = deque(sorted(self.queue, key=lambda run: run.rank))

    def stop(self, ends: Mapping[LocalRun, Finish]) -> News:
        """End runs with what they have."""

        def work(news: News) -> None:
            waiting = [run for run in self.queue if run in ends]
            if waiting:
                self.queue = deque(run for run in self.queue if run not in ends)
                news.ended += [(run, *run.unfinished(ends[run])) for run in waiting]
            inside: list[Ending] = [(row, ends[run], "") for row, run in enumerate(self.batch.runs) if run in ends]
            self._let_go(inside, news)

        return self._guarded(work)

    def stop_all(self, finish: Finish) -> News:
        """End every run with what it has."""
        return self.stop(dict.fromkeys((*self.queue, *self.batch.runs), finish))

    def fail_all(self, error: EngineError, *, waiting: bool = True) -> News:
        """End every run with an error (the engine itself failed), or only those inside, and start afresh."""
        runs = dict.fromkeys((*self.batch.runs, *self._joining))
        if waiting:
            runs |= dict.fromkeys(self.queue)
            self.queue.clear()
        self._clear()
        return News([(run, error, None) for run in runs])

    def update(self, state: Mapping[str, Tensor], version: int, caches: Caches) -> News:
        """Take new weights. Kept prefixes are forgotten; runs inside keep their caches or have them recomputed."""
        self.decoder.load(state)
        self.version = version
        self.forget()
        if caches == "keep":
            self.batch.mixed[: len(self.batch)] = True
            self.commons.close()
            return News()
        return self._guarded(lambda news: self._recompute())

    def forget(self) -> None:
        """Drop kept prefixes, and the shape of the memory where nobody is inside.

        How wide the memory is decides the order of sums and with it a log-prob's last digit. What comes next must not
        depend on what was asked before: a run that is resumed here never asked it.
        """
        self._cache.clear()
        if not self.busy:
            self._ranks = Ranks()
        if not len(self.batch):
            self._clear()

    def _recompute(self) -> None:
        self.commons.read_again(self.limits.chunk)
        n, known = len(self.batch), self.batch.own - 1
        rows = max(1, self.limits.chunk // max(int(known.max(initial=0)), 1))
        for first in range(0, n, rows):
            last = min(first + rows, n)
            width, base = int(known[first:last].max()), self.batch.base[first:last]
            if not width:
                continue
            columns = np.minimum(base[:, None] + np.arange(width), self.batch.ids.shape[1] - 1)
            ids = torch.from_numpy(np.take_along_axis(self.batch.ids[first:last], columns, 1)).to(self.decoder.device)
            start = torch.zeros(last - first, dtype=torch.long, device=self.decoder.device)
            view = self._slab.view(first, last)
            self.decoder.extend(ids, start, view, width, None, self._shared_by(first, last))
        self.batch.mixed[:n] = False

    def _shared_by(self, first: int, last: int) -> Shared | None:
        return self.commons.shared(self.batch.commons[first:last], self.batch.base[first:last])

    def _advance(self, news: News) -> None:
        old = len(self.batch)
        taken = self._admit(news)
        states = list[Tensor]()
        guessing = self.speculator if old else None
        drafts = None if guessing is None else guessing.draft(self.batch, self._room.columns)
        seating = seat(taken, self.commons, self._cache, self.limits.chunk)
        self._fit(seating.longest, 0 if drafts is None else drafts.tokens.shape[1])
        at = self.batch.own - 1
        decoded: Tensor | None = None
        if old:
            last = self.batch.ids[np.arange(old), self.batch.length[:old] - 1]
            if drafts is None and self.graphs is not None:
                decoded = self.graphs.read(self._slab, last, at, self._shared)
            if decoded is None:
                decoded = read_ahead(self.decoder, self._slab.view(0, old), last, at, drafts, self._shared)
            states.append(decoded[:, 0])
            self._report(range(old), states[0], news)
        if taken:
            for lead in seating.leaders:
                self._sit(lead.run, lead.new + lead.paid, lead.common)
            for run, leader in seating.followers:
                self._sit(run, 0, seating.leaders[leader].common)
            most = self.limits.chunk
            states.append(read(self.decoder, seating, self._cache, self._slab, self._shared_by, first=old, most=most))
            self._shared = self._shared_by(0, len(self.batch))
        if states:
            before = self.batch.length[: len(self.batch)].copy()
            hidden = torch.cat(states) if len(states) > 1 else states[0]
            failures = choose(wide(self.decoder.logits(hidden)), self.batch, self.version)
            endings = endings_of(self.batch, self._stops, failures, np.arange(len(self.batch)))
            paths: list[list[int]] = [[] for _ in range(old)]
            if drafts is not None and decoded is not None:
                endings += self._accept(decoded, drafts, paths, {row for row, _, _ in endings})
                settle(self._slab.view(0, old), at, paths)
            if self.speculator is not None:
                self._tell(self.speculator, drafts, paths, before, decoded, states[-1] if taken else None)
            self._let_go(endings, news)
            self._report(range(len(self.batch)), None, news)
        elif self.queue and not news.ended:
            raise EngineError(f"it made no progress: {len(self.queue)} requests wait and none is let in")

    def _accept(self, hidden: Tensor, drafts: Drafts, paths: list[list[int]], over: set[int]) -> list[Ending]:
        """Draw on where what was drawn had been guessed, and note the way down each tree.

        `over` are the rows that have ended by their first token.
        """
        b, endings = self.batch, list[Ending]()
        going = [(row, 0) for row in np.flatnonzero(drafts.count > 0).tolist()]
        while going:
            new = [(row, drafts.child(row, node, int(b.ids[row, b.length[row] - 1]))) for row, node in going]
            going = [(row, node) for row, node in new if node and row not in over]
            if not going:
                break
            for row, node in going:
                paths[row].append(node)
            rows, nodes = np.array(going, np.int64).T
            index = torch.from_numpy(np.ascontiguousarray(np.array([rows, nodes]))).to(hidden.device)
            failures = choose(wide(self.decoder.logits(hidden[index[0], index[1]])), b, self.version, rows)
            endings += (ended := endings_of(b, self._stops, failures, rows))
            over |= {row for row, _, _ in ended}
        return endings

    def _tell(
        self, speculator: Speculator, drafts: Drafts | None, paths: list[list[int]], before: Ints,
        decoded: Tensor | None, joined: Tensor | None,
    ) -> None:  # fmt: skip
        """What became of the guesses, and what was read: rows that went on, then rows that joined."""
        old = len(paths)
        if decoded is not None:
            accepted = sum(map(len, paths))
            speculator.judge(drafts, accepted, old + accepted, clean=joined is None)
            speculator.saw(self.batch, range(old), before[:old], drafts, paths, decoded)
        if joined is not None:
            nothing_guessed = [list[int]() for _ in range(len(joined))]
            rows = range(old, old + len(joined))
            speculator.saw(self.batch, rows, before[old:], None, nothing_guessed, joined[:, None])

    def _guarded(self, work: Callable[[News], None]) -> News:
        """Do something that may raise anywhere; no run is lost by it, and what had ended by then has ended."""
        news = News()
        try:
            work(news)
        except BaseException as error:  # whatever it is, somebody waits for every run
            over, short = {run for run, _, _ in news.ended}, is_shortage(error)
            if not (short and self._shrink(over)):
                failed = self.fail_all(_failure(error), waiting=not (short and (self.batch.runs or self._joining)))
                news.ended += [outcome for outcome in failed.ended if outcome[0] not in over]
        self._joining = []
        return news

    def _shrink(self, over: set[LocalRun]) -> bool:
        """Put everybody inside back into the queue and let in fewer from now on; False where that cannot help."""
        inside = len({*self.batch.runs, *self._joining} - over)
        limits = smaller(self.limits, inside)
        if limits is None:
            return False
        try:
            back = dict.fromkeys((*self.batch.park(), *self._joining))
        except MemoryError:
            return False
        self.queue.extendleft(run for run in reversed(back) if run not in over)
        self.limits = limits
        self._clear()
        LOG.warning(
            "The local engine ran out of memory with %d requests inside; from now on it takes at most %d at once and "
            "keeps fewer prefixes. A smaller max_tokens_in_memory avoids this.", inside, limits.max_batch,
        )  # fmt: skip
        return True

    def _clear(self) -> None:
        """Give back all memory and begin anew with an empty batch."""
        self._joining = []
        if self.speculator is not None:
            self.speculator.clear()
        self.batch = DecodeBatch(self.decoder.vocab_size, self.limits.max_top, LEVELS)
        self.commons.room = self.limits.commons
        self.commons.clear()
        self._shared = None
        self._slab = Slab.zeros(self.decoder.shapes, 0, 0, self.decoder.dtype, self.decoder.device)
        if self.graphs is not None:
            self.graphs.forget()
        self._cache = self._new_cache()
        self._room = Room(0, 0)

    def _admit(self, news: News) -> list[LocalRun]:
        n, lim = len(self.batch), self.limits
        while self.queue and self.queue[0].limit == len(self.queue[0].ids):
            run = self.queue.popleft()
            news.ended.append((run, nothing("length"), None))
        if not self.queue:
            return []
        inside = int(self.batch.limit[:n].max(initial=0))
        taken, longest = wave(
            self.queue, n, inside, self._cache.known, max_batch=lim.max_batch, budget=lim.budget, prefill=lim.prefill
        )
        self._joining = taken
        taken = [run for run in taken if self._understood(run, news)]
        room = room_for(n + len(taken), longest, self._room, max_batch=lim.max_batch, budget=lim.budget)
        if taken and room != self._room:
            self._room = room
            self.batch.resize(room.rows, room.columns)
        return taken

    def _understood(self, run: LocalRun, news: News) -> bool:
        """Whether its stops can be looked up; a codec that fails there fails that run only."""
        try:
            self._stops.meaning(run.request.sampling)
        except Exception as error:
            if is_shortage(error):
                raise
            news.ended.append((run, blamed("The codec failed on the stops of a request", error), None))
            return False
        return True

    def learn(self) -> bool:
        """Train the drafter a little; False where there is nothing to learn."""
        return self.speculator is not None and self.speculator.learn()

    def _fit(self, joining: int, guessed: int) -> None:
        """Make the slab as wide as this step and the last state of who ends in it need; much wider is as bad."""
        used = int(self.batch.own.max(initial=0))
        need = max(used + guessed, joining) + 1
        step = _STEP_RECORDED if self.graphs is not None and self.graphs.works else _STEP
        columns, have = min(-(-need // step) * step, self._room.columns), self._slab.capacity
        if self._slab.rows != self._room.rows or columns > have or 4 * columns < 3 * have:
            self._slab.resize(self._room.rows, columns, len(self.batch), used, room=self._room.columns)

    def _sit(self, run: LocalRun, prefilled: int, common: CommonPrefix | None) -> None:
        run.begun = True
        base = 0 if common is None else common.end
        self.batch.add(run, self._stops.meaning(run.request.sampling), prefilled, base, self.commons.rows_of(common))

    def _report(self, rows: range, hidden: Tensor | None, news: News) -> None:
        """Increments: at once where no state is wanted, else after the step that has read the last token."""
        runs, b = self.batch.runs, self.batch
        told = [
            row for row in rows
            if runs[row].streaming and runs[row].hidden == (hidden is not None) and b.length[row] > b.shown[row]
        ]  # fmt: skip
        states = None if hidden is None or not told else _numpy(hidden[told])
        for i, row in enumerate(told):
            state = None if states is None else states[i].copy()
            news.parts.append((runs[row], b.sample(row, int(b.shown[row]), "abort", state)))
            b.shown[row] = b.length[row]

    def _let_go(self, endings: list[Ending], news: News) -> None:
        """Deliver rows that end, keep their prefixes, and close the gaps."""
        if not endings:
            return
        b, kept = self.batch, list[tuple[int, int, Ids]]()
        for row, finish, fired in endings:
            try:
                ended = self._ended(row, finish, fired, kept)
            except Exception as error:  # the others end all the same
                ended = b.runs[row], blamed("The engine failed when a sample ended", error), None
            if isinstance(ended[1], EngineError):
                self._slab.wipe(row)
            news.ended.append(ended)
        try:
            planned = {row for row, *_ in kept if b.runs[row].request.forks == "planned"}
            self._cache.store(kept, self._slab, planned)
        except Exception:  # what is not kept is computed again
            self._cache.clear()
        longest = int(b.own.max())
        source, target = b.remove([row for row, _, _ in endings])
        if source:
            index = torch.tensor([source, target], device=self.decoder.device)
            self._slab.copy_rows(index[0], index[1], longest)
        self.commons.free(b)
        self._shared = self._shared_by(0, len(b))

    def _ended(
        self, row: int, finish: Finish | EngineError, fired: str,
        kept: list[tuple[int, int, Ids]],
    ) -> Outcome:  # fmt: skip
        b = self.batch
        run, length = b.runs[row], int(b.length[row])
        if self.speculator is not None:
            self.speculator.gone(run, b.ids[row, :length])
        if isinstance(finish, EngineError):
            return run, finish, None
        hidden, known = None, length - 1
        if run.hidden:
            hidden, known = self._last_state(row), length
        whole = b.sample(row, int(b.begin[row]), finish, hidden, fired)
        rest = b.sample(row, int(b.shown[row]), finish, hidden, fired)
        over = run.request.forks == "none" and finish != "abort"
        if not (b.mixed[row] or over):
            kept.append((row, int(b.base[row]), b.ids[row, :known]))
        return run, whole, rest

    def _last_state(self, row: int) -> FloatArray:
        """Last hidden state at a row's last token, which no step has read yet."""
        b, device = self.batch, self.decoder.device
        at = int(b.own[row]) - 1
        ids = torch.tensor([[int(b.ids[row, b.length[row] - 1])]], device=device)
        view, start = self._slab.view(row, row + 1), torch.tensor([at], device=device)
        return _numpy(self.decoder.extend(ids, start, view, at + 1, None, self._shared_by(row, row + 1))[0, 0])


def _numpy(hidden: Tensor) -> FloatArray:
    return hidden.float().cpu().numpy().copy()


def _failure(error: BaseException) -> EngineError:
    if is_shortage(error):
        return EngineError(f"The engine has too little memory for this request alone ({error}); lower max_tokens.")
    return blamed("The engine failed in a decoding step", error)
