"""Writes a run in segments: a pause or a break ends the call, what came stays, and the next call goes on from there.

A segment is what one call wrote under one weight version, so a version is never guessed. A token counts once, when it
has arrived; what an engine made and could not deliver is made again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from rolltree.engine.local.sampling import stream_key
from rolltree.engine.local.stops import EOS, MAYBE, STOP, StopTables
from rolltree.engine.protocol import EngineError, Sampling
from rolltree.engine.segments.distribution import distribution_of, entropy_of, neutral
from rolltree.engine.segments.run import SegmentRun
from rolltree.engine.segments.wire import Backend, BrokenError, Piece, SegmentRequest
from rolltree.tree.node import Finish

# Where a piece ends a sample: the same rules for every engine, applied to token ids and to no one's text but ours.

_READ = 8
"""Tokens read back per character of the longest stop string: characters can take several tokens."""
_NAMED = 1024
"""Most ids an engine is told to end at for the sake of stop strings."""


@dataclass(frozen=True, slots=True)
class End:
    """How many tokens of a piece belong to the sample, and why it ends there ("" = it goes on)."""

    keep: int
    finish: Finish | None = None
    stopped_by: str = ""


def foreseen(tables: StopTables, s: Sampling, eos: int) -> tuple[tuple[int, ...], bool]:
    """Ids at which an engine may end a sample by itself, and whether a sample can end nowhere else before its limit.

    A stop string of one ASCII character stands in one token, whatever the tokenizer; a longer one may straddle several,
    and only we find it.
    """
    eos_too = () if s.ignore_eos or eos < 0 else (eos,)
    certain = tables.certain(s.stop) if s.stop else ()
    many = len(certain) > _NAMED
    alone = all(len(x) == 1 and x.isascii() and x != " " for x in s.stop) and not many
    return (*s.stop_ids, *(() if many else certain), *eos_too), alone


def find_end(tables: StopTables, s: Sampling, written: Sequence[int], ids: Sequence[int], room: int) -> End:
    """Read new ids after those written; `room` is how many may still come."""
    meaning, reach = tables.meaning(s), _READ * max(map(len, s.stop), default=0) + _READ
    for i, token in enumerate(ids[:room]):
        # An id outside the vocabulary ends nothing; it is refused when it is written down.
        bits = int(meaning[token]) if 0 <= token < len(meaning) else 0
        if bits & EOS:
            return End(i + 1, "eos")
        fired = tables.fired([*written[-reach:], *ids[: i + 1]], s.stop) if bits & MAYBE else ""
        if fired or bits & STOP:
            return End(i + 1, "stop", fired)
    return End(room, "length") if len(ids) >= room else End(len(ids))


# Lets work in until it is closed; closing waits until everything inside has left.


class Turnstile:
    """Several may close it, each opens it again; it lets in while nobody holds it closed."""

    def __init__(self) -> None:
        self._closed = 0
        self._inside = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> None:
        while self._closed:
            await self._change()
        self._inside += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        self._tell()

    async def close(self) -> None:
        """Let nobody in any more and wait until nobody is inside; who is cancelled while waiting has closed nothing."""
        self._closed += 1
        try:
            while self._inside:
                await self._change()
        except BaseException:
            self.open()
            raise

    def open(self) -> None:
        """Take one closing back."""
        self._closed -= 1
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


_SEEDS = (1 << 63) - 1
TOGETHER = 32
"""Tokens that may come together where nobody watches and the engine finds every end by itself: handing over each one
alone costs a small model more than computing it."""


@dataclass(frozen=True, slots=True)
class SegmentPatience:
    """How long to go on asking an engine that went away."""

    tries: int = 8
    """Calls in a row that brought nothing before a request fails."""
    first: float = 0.25
    """Seconds before the second try; each further wait is twice as long, at random between half and all of it."""
    longest: float = 15.0
    """Most seconds between two tries."""

    def wait(self, failed: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(failed - 1, 30)) * random.uniform(0.5, 1.0)


class Writer:
    """Writes one run; `interrupt` ends its present call, and it goes on when the gate lets it in again."""

    def __init__(
        self, backend: Backend, gate: Turnstile, tables: StopTables, eos: int, patience: SegmentPatience,
        salt: Callable[[], str],
    ) -> None:  # fmt: skip
        self._backend = backend
        self._gate = gate
        self._tables = tables
        self._eos = eos
        self._patience = patience
        self._salt = salt
        self._calling = False
        self._broken_off = False
        self._task: asyncio.Task[None] | None = None

    def start(self, run: SegmentRun) -> asyncio.Task[None]:
        """Begin with the loop's next turn."""
        run.halt = self._halt
        self._task = asyncio.get_running_loop().create_task(self._write(run))
        return self._task

    def interrupt(self) -> None:
        """End the present call, if there is one; the run goes on later."""
        if self._calling and self._task is not None and not self._broken_off:
            self._broken_off = True
            self._task.cancel()

    def _halt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _write(self, run: SegmentRun) -> None:
        failed = 0
        try:
            while not run.ended:
                before = len(run.written)
                try:
                    await self._segment(run)
                except BrokenError as broken:
                    failed = 1 if len(run.written) > before else failed + 1
                    if failed >= self._patience.tries:
                        raise EngineError(f"{self._backend.name} failed {failed} times in a row: {broken}") from broken
                    await asyncio.sleep(max(broken.after, self._patience.wait(failed)))
        except EngineError as error:
            run.settle(error)
        except Exception as error:
            run.settle(EngineError(f"{self._backend.name} failed: {type(error).__name__}: {error}"))
        finally:
            # Whatever ended this task, nobody else would end its run.
            if not run.ended:
                run.end(run.asked or "abort")

    async def _segment(self, run: SegmentRun) -> None:
        async with self._gate:
            self._calling = True
            try:
                await self._call(run)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                # A halted run is over for good; an interrupted one has only lost its call.
                if not self._broken_off or run.ended or task is None:
                    raise
                task.uncancel()
            finally:
                self._calling = self._broken_off = False

    async def _call(self, run: SegmentRun) -> None:
        s, backend = run.request.sampling, self._backend
        prefix, so_far, held = [*run.ids, *run.written], list(run.written), list[Piece]()
        version, finish, stopped_by = backend.version, None, ""
        late = backend.reach.of_sampling and not neutral(s, backend.reach.vocab) and s.temperature > 0
        ask = self._ask(run, prefix)
        run.keeping = ask.together > 1
        try:
            async with aclosing(backend.write(ask)) as pieces:
                async for whole in pieces:
                    run.begun = True
                    run.prefilled += whole.prefilled
                    if finish is not None or not (whole.ids or whole.finish):
                        continue
                    end = find_end(self._tables, s, so_far, whole.ids, run.most - len(so_far))
                    piece = _cut(whole, end.keep)
                    so_far += piece.ids
                    if late:
                        held.append(piece)
                        run.holding = True
                    else:
                        take(run, piece, s, version, backend.reach.vocab)
                    finish, stopped_by = end.finish, end.stopped_by
                    if whole.finish and finish is None:
                        raise _premature(backend, whole.finish)
                    if stopped_by:
                        break  # A stop string is ours alone; at every other end the engine ends the call itself.
        finally:
            try:
                if held:
                    await self._read_late(run, prefix, held, version)
                # Also where the call broke or was interrupted after its last token: nothing may be written behind it.
                if finish is not None:
                    run.end(finish, stopped_by)
            finally:
                run.holding = run.keeping = False
                if run.asked is not None:
                    run.end(run.asked)
        if finish is None:
            raise BrokenError("it ended a call without a word")

    def _ask(self, run: SegmentRun, prefix: list[int]) -> SegmentRequest:
        s, start = run.request.sampling, len(run.written)
        ends, alone = foreseen(self._tables, s, self._eos)
        # A later segment draws from a stream of its own, or it would repeat the numbers of the first.
        seed = stream_key((run.seed << 32) + start) & _SEEDS
        together = TOGETHER if alone and not run.watched else 1
        return SegmentRequest(
            prefix, run.most - start, s, ends, seed, run.reported, self._salt(), together,
            _wants_entropy(run) and self._backend.reach.entropy, run.apart, run.request.affinity,
        )  # fmt: skip

    async def _read_late(self, run: SegmentRun, prefix: list[int], held: list[Piece], version: int) -> None:
        """Log-probs of the policy for tokens whose engine told only those of the distribution."""
        ids = [i for piece in held for i in piece.ids]
        if ids:
            read = await self._backend.read([*prefix, *ids], len(prefix), 0)
            spread = [h for piece in held for h in piece.entropy]
            best = [b for piece in held for b in piece.alternatives]
            run.take(ids, read.logp, [p for piece in held for p in piece.logp], version, best, spread)


def take(run: SegmentRun, piece: Piece, s: Sampling, version: int, vocab: int) -> None:
    """Write a piece down with what its alternatives say about distribution and entropy."""
    n = len(piece.ids)
    wrong = next((i for i in piece.ids if not 0 <= i < vocab), None)
    if wrong is not None:
        raise EngineError(f"the engine wrote token {wrong}, outside the vocabulary of {vocab}: it has another model")
    if len(piece.logp) != n or (run.reported and len(piece.alternatives) != n):
        raise EngineError(
            f"the engine sent {n} tokens with {len(piece.logp)} log-probs and {len(piece.alternatives)} lists of "
            "alternatives; there must be one of each per token"
        )
    if not n:
        return
    sampling_logprob, spread = list(piece.logp), list(piece.entropy)
    if run.reported:
        rows = np.array([p[: run.reported] for _, p in piece.alternatives], np.float64)
        if _wants_entropy(run) and not spread:
            spread = entropy_of(rows).tolist()
        if s.temperature != 0 and not neutral(s, vocab):
            sampling_logprob = distribution_of(np.array(piece.logp, np.float64), rows, s).tolist()
    if s.temperature == 0:
        sampling_logprob = [float("nan")] * n
    run.take(piece.ids, piece.logp, sampling_logprob, version, piece.alternatives, spread)


def _cut(piece: Piece, keep: int) -> Piece:
    if keep >= len(piece.ids):
        return piece
    return Piece(piece.ids[:keep], piece.logp[:keep], piece.alternatives[:keep], entropy=piece.entropy[:keep])


def _wants_entropy(run: SegmentRun) -> bool:
    return any(w.startswith("entropy") for w in run.request.want)


def _premature(backend: Backend, finish: str) -> BaseException:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()  # our own doing: the last piece was what the engine still held
    if finish == "abort":
        return BrokenError("it aborted the request")
    return EngineError(
        f"{backend.name} ended a sample by a rule of its own (finish_reason {finish!r}); "
        "serve the model without stop rules, with a context at least as long as the rollouts"
    )
