"""The exact engine: a policy given by explicit conditionals, sampled token by token with nothing approximated.

Its distribution is the policy's by construction and all paths can be enumerated, so estimators, forks and budgets can
be held against exact answers. It meets the whole engine contract, weight updates in flight included.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rolltree.engine.protocol import Caches, Capabilities, EngineError, Request, Sample, Sampling, Scored, stop_text
from rolltree.engine.run import BaseRun
from rolltree.tree.node import Array, Finish, FloatArray, Top

Policy = Callable[[tuple[int, ...]], Sequence[float]] | Mapping[tuple[int, ...], Sequence[float]]
"""Prefix → probabilities of the next token. A mapping may lack prefixes that are never reached."""

FEATURES = frozenset({
    "entropy:full", "top", "hidden", "score", "stream", "abort", "hook", "greedy", "update", "versions", "offset",
})  # fmt: skip

_Row = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Letters:
    """A codec of one character per id. `eos_id` is its own id, shown as nothing; -1 = texts never end by themselves."""

    alphabet: str
    eos_id: int = -1

    @property
    def vocab_size(self) -> int:
        """Number of ids, eos included."""
        return len(self.alphabet) + (self.eos_id >= len(self.alphabet))

    def encode(self, text: str) -> list[int]:
        """Positions in the alphabet."""
        unknown = set(text) - set(self.alphabet)
        if unknown:
            raise ValueError(f"cannot encode {min(unknown)!r}: the alphabet is {self.alphabet!r}")
        return [self.alphabet.index(c) for c in text]

    def decode(self, ids: Sequence[int] | Array) -> str:
        """Characters of the ids."""
        return "".join(self.alphabet[i] for i in (int(i) for i in ids) if i != self.eos_id)


def enumerate_paths(
    policy: Policy, max_len: int, *, prefix: Sequence[int] = (), eos: int = -1
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every continuation of a prefix with its probability: up to `max_len` tokens, or ended by `eos` (included)."""
    start = tuple(int(t) for t in prefix)
    stack: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while stack:
        path, p = stack.pop()
        if len(path) == max_len or (path and path[-1] == eos):
            yield path, p
            continue
        row = _conditionals(policy, start + path)
        stack.extend(((*path, t), p * float(q)) for t, q in enumerate(row) if q > 0)


@dataclass(slots=True)
class _Drawn:
    actions: list[int] = field(default_factory=list[int])
    logp: list[float] = field(default_factory=list[float])
    sampling_logprob: list[float] = field(default_factory=list[float])
    version: list[int] = field(default_factory=list[int])
    rows: list[_Row] = field(default_factory=list[_Row])


class TabularRun(BaseRun):
    """A request in flight in a `TabularEngine`."""

    def __init__(self, engine: TabularEngine, request: Request) -> None:
        super().__init__(request)
        self._engine = engine
        self._prefix = tuple(int(t) for t in request.prefix)
        self._drawn = _Drawn()
        seed = request.sampling.seed
        self._random = random.Random(engine.fresh_seed() if seed is None else seed)
        for _ in range(request.sampling.offset):
            self._random.random()

    def advance(self) -> None:
        """Draw one token, unless it has ended."""
        if self.ended:
            return
        self.begun = True
        try:
            self._draw()
        except EngineError as error:
            self.settle(error)
        except BaseException as error:  # a hook of the user's may raise anything
            failure = EngineError(f"the tabular engine failed with {type(error).__name__}: {error}")
            failure.__cause__ = error
            self.settle(failure)
        self._news.set()

    def _draw(self) -> None:
        s, d = self.request.sampling, self._drawn
        if len(d.actions) >= s.max_tokens:
            return self._halt("length")
        raw = self._engine.row(self._prefix + tuple(d.actions))
        sampling_logprob = _shaped(raw, d.actions, s)
        token = (
            int(np.argmax(sampling_logprob))
            if s.temperature == 0
            else _draw_from(sampling_logprob, self._random.random())
        )
        d.actions.append(token)
        d.logp.append(float(raw[token]))
        d.sampling_logprob.append(math.nan if s.temperature == 0 else float(sampling_logprob[token]))
        d.version.append(self._engine.version)
        d.rows.append(raw)
        codec = self._engine.codec
        text = stop_text(codec, d.actions, s.stop) if s.stop else ""
        fired = next((stop for stop in s.stop if stop in text), "")
        # A stop string that is the eos token is one all the same, as in the local engine: the request names it.
        if token == codec.eos_id and not s.ignore_eos and not fired:
            self._halt("eos")
        elif fired or token in s.stop_ids:
            self._halt("stop", fired)
        elif len(d.actions) == s.max_tokens:
            self._halt("length")
        return None

    def _halt(self, finish: Finish, stopped_by: str = "") -> None:
        self.settle(self._sample(finish, 0, stopped_by))

    def _after(self, seen: int) -> tuple[Sample, int] | None:
        now = len(self._drawn.actions)
        return (self._sample("abort", seen), now) if now > seen else None

    def _sample(self, finish: Finish, start: int, stopped_by: str = "") -> Sample:
        d, want = self._drawn, self.request.want
        rows = np.array(d.rows[start:], np.float64).reshape(-1, self._engine.codec.vocab_size)
        k = next((int(w[4:]) for w in want if w.startswith("top:")), 0)
        end = (*self._prefix, *d.actions)
        return Sample(
            np.array(d.actions[start:], np.int32),
            np.array(d.logp[start:], np.float32),
            np.array(d.sampling_logprob[start:], np.float32),
            np.array(d.version[start:], np.int32),
            finish,
            stopped_by,
            entropy=_entropy(rows) if "entropy" in want else None,
            top=_top(rows, k) if k else None,
            hidden=self._engine.row(end).astype(np.float32) if "hidden" in want else None,
            prefilled=len(self._prefix) if start == 0 else 0,
        )


class TabularEngine:
    """Samples and scores a policy of explicit conditionals. `hidden` is the row of next-token log-probs.

    All runs in flight advance together, one token a tick of the event loop. `shuffle` makes each tick advance a random
    half of them instead, in random order, and `pace` is awaited between ticks: what a test of concurrency wants to vary
    or to break. `embeddings` is the table to show for the feature of that name, which is absent without it.
    """

    def __init__(
        self,
        policy: Policy,
        codec: Letters,
        *,
        max_context: int = 4096,
        version: int = 0,
        seed: int = 0,
        shuffle: int | None = None,
        pace: Callable[[], Awaitable[None]] | None = None,
        embeddings: FloatArray | None = None,
    ) -> None:
        self.codec = codec
        self.version = version
        self._policy = policy
        self._rows: dict[tuple[int, ...], _Row] = {}
        self._runs: list[TabularRun] = []
        self._driver: asyncio.Task[None] | None = None
        self._resumed: asyncio.Event | None = None
        self._pace = pace
        self._shuffle = None if shuffle is None else random.Random(shuffle)
        self._seeds = random.Random(seed)
        self._embeddings = embeddings
        extra = () if embeddings is None else ("embeddings",)
        self.capabilities = Capabilities(FEATURES.union(extra), max_context, max_top=codec.vocab_size)

    def submit(self, request: Request) -> TabularRun:
        """Start a request; one whose prefix fills the context can never fit."""
        if len(request.prefix) >= self.capabilities.max_context:
            raise EngineError(
                f"a prefix of {len(request.prefix)} tokens leaves no room in a context of "
                f"{self.capabilities.max_context}; shorten the prompt or raise max_context"
            )
        run = TabularRun(self, request)
        self._runs.append(run)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        return run

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Exact log-probs of tokens[start:]."""
        ids = tuple(int(t) for t in tokens)
        rows = np.array([self.row(ids[:i]) for i in range(start, len(ids))]).reshape(-1, self.codec.vocab_size)
        logp = rows[np.arange(len(rows)), list(ids[start:])] if len(rows) else np.zeros(0)
        return Scored(
            logp.astype(np.float32),
            self.version,
            entropy=_entropy(rows) if "entropy" in want else None,
            hidden=self.row(ids).astype(np.float32) if "hidden" in want else None,
        )

    async def embeddings(self) -> FloatArray:
        """The table it was given."""
        if self._embeddings is None:
            raise EngineError("this tabular engine has no embeddings; make it with embeddings=a table")
        return self._embeddings

    async def pause(self) -> None:
        """Stop drawing; nothing is ever half drawn, so it is idle at once."""
        if self._resumed is None:
            self._resumed = asyncio.Event()

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Take another policy. There are no caches: tokens in flight keep their version, new ones get this."""
        self._policy, self.version = cast(Policy, weights), version
        self._rows.clear()

    async def resume(self) -> None:
        """Go on drawing."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def close(self) -> None:
        """End what is in flight as aborted."""
        for run in self._runs:
            run.stop()
        await self.resume()

    def row(self, prefix: tuple[int, ...]) -> _Row:
        """Log-probs of the next token."""
        row = self._rows.get(prefix)
        if row is None:
            with np.errstate(divide="ignore"):
                row = np.log(_conditionals(self._policy, prefix))
            if len(row) != self.codec.vocab_size:
                raise EngineError(
                    f"the tabular policy's row for {prefix} has {len(row)} entries; the codec has "
                    f"{self.codec.vocab_size} ids"
                )
            self._rows[prefix] = row
        return row

    def fresh_seed(self) -> int:
        """The seed of a request that brought none."""
        return self._seeds.getrandbits(63)

    async def _drive(self) -> None:
        while self._runs:
            try:
                if self._resumed is not None:
                    await self._resumed.wait()
                for run in self._whose_turn():
                    run.advance()
                self._runs = [run for run in self._runs if not run.ended]
                await (asyncio.sleep(0) if self._pace is None else self._pace())
            except BaseException as error:
                # Without its driver no run would ever end.
                for run in self._runs:
                    run.settle(error)
                if not isinstance(error, Exception):
                    raise

    def _whose_turn(self) -> list[TabularRun]:
        if self._shuffle is None:
            return self._runs
        return self._shuffle.sample(self._runs, (len(self._runs) + 1) // 2)


def _conditionals(policy: Policy, prefix: tuple[int, ...]) -> _Row:
    try:
        given = policy[prefix] if isinstance(policy, Mapping) else policy(prefix)
    except KeyError:
        raise EngineError(f"the tabular policy has no row for the prefix {prefix}; add one") from None
    row = np.asarray(given, np.float64)
    if row.ndim != 1 or (row < 0).any() or abs(row.sum() - 1) > 1e-6:
        raise EngineError(f"the tabular policy's row for {prefix} is not a distribution: it sums to {row.sum():.6g}")
    return row / row.sum()


def _shaped(raw: _Row, generated: Sequence[int], s: Sampling) -> _Row:
    """Log-probs really sampled from: hook, then temperature, top-k, top-p."""
    logits = raw if s.hook is None else _hooked(raw, s.hook(generated, raw.copy()))
    if s.temperature not in (0.0, 1.0):
        logits = logits / s.temperature
    order = np.argsort(-logits, kind="stable")
    if s.top_k:
        logits = logits.copy()
        logits[order[s.top_k :]] = -math.inf
    sampling_logprob = logits - np.logaddexp.reduce(logits)
    if s.top_p < 1:
        before = np.cumsum(np.exp(sampling_logprob[order])) - np.exp(sampling_logprob[order])
        sampling_logprob = sampling_logprob.copy()
        sampling_logprob[order[before >= s.top_p]] = -math.inf
        sampling_logprob -= np.logaddexp.reduce(sampling_logprob)
    return sampling_logprob


def _hooked(raw: _Row, new: Any) -> _Row:
    """What a hook returned, refused where nothing can be drawn from it."""
    logits = np.asarray(new, np.float64)
    if logits.shape != raw.shape:
        raise EngineError(f"the logits hook returned shape {logits.shape} instead of {raw.shape}")
    if np.isnan(logits).any() or (logits == math.inf).any() or not np.isfinite(logits).any():
        raise EngineError("the logits hook left no token to draw (all -inf) or returned NaN or +inf")
    return logits


def _draw_from(sampling_logprob: _Row, u: float) -> int:
    cumulated = np.cumsum(np.exp(sampling_logprob))
    return int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))


def _entropy(rows: _Row) -> NDArray[np.float32]:
    p = np.exp(rows)
    return -np.where(p > 0, p * np.where(p > 0, rows, 0.0), 0.0).sum(-1).astype(np.float32)


def _top(rows: _Row, k: int) -> Top:
    ids = np.argsort(-rows, axis=-1, kind="stable")[:, :k]
    return Top(ids.astype(np.int32), np.take_along_axis(rows, ids, -1).astype(np.float32))
