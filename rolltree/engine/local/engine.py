"""The asyncio front of the embedded engine."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rolltree.engine.local.admit import AdmissionLimits, check_room, check_sampling, check_tokens, top_wanted
from rolltree.engine.local.core import Core, News
from rolltree.engine.local.prefill import ScoreJob
from rolltree.engine.local.prefix import PrefixCounts
from rolltree.engine.local.prefix_blocks import PrefixBlocks, exported, fingerprint, imported
from rolltree.engine.local.run import LocalRun
from rolltree.engine.local.sampling import passed_over, stream_key
from rolltree.engine.local.speculate import Speculation, Speculator, Target, why_no_trees
from rolltree.engine.local.turns import Turns
from rolltree.engine.local.worker import Worker
from rolltree.engine.prefixes import Offered, Taken
from rolltree.engine.protocol import Caches, Capabilities, Codec, EngineError, Request, Sampling, Scored
from rolltree.engine.run import Watchdog
from rolltree.errors import ModelError
from rolltree.policy.decoder import Decoder
from rolltree.policy.device import HALF, free_memory
from rolltree.policy.foreign import decoder_of
from rolltree.policy.formats import Precision, check_precision
from rolltree.policy.load import LoadedModel, load_model, read_weights
from rolltree.policy.precision import linear_weights, rounded_state
from rolltree.tree.node import Array, Finish, FloatArray

_GIVES = ("entropy", "entropy:full", "top", "hidden", "score", "greedy", "hook", "embeddings")
_DOES = ("stream", "abort", "update", "shared-prefix", "versions", "offset")
_MAX_TOP = 256


class LocalEngine:
    """Samples a causal language model on this machine (see `rolltree.engine.protocol.Engine`).

    `model` is a name or folder `load_model` knows, a `LoadedModel`, or a Hugging Face model (then `codec` is needed).
    The engine copies the weights: training the model changes nothing here until `update_weights`.
    `max_tokens_in_memory` bounds keys and values of requests and kept prefixes together (a quarter is for
    prefixes, half of that for kept ones and half for those that requests inside share; `share_prefixes=False` gives it
    all to requests); what does not fit now waits. Default: what `max_batch`
    contexts need, at most a quarter of the free memory. `threads` sets torch's threads for the whole process. With
    `lockstep` no token is made between news of a run and what is submitted or stopped because of it, so that a program
    makes the same requests every time, in the same batches. Engines that answer each other in one program are made
    `beside` the first of them, and step in turns with it. `speculate` guesses tokens ahead and keeps those that would
    have been drawn anyway; `speculation` counts what came of it. `precision` rounds the weights of linear layers,
    those of every update too (see `rolltree.policy.precision`).
    """

    def __init__(
        self,
        model: str | Path | LoadedModel | PreTrainedModel,
        codec: Codec | None = None,
        *,
        max_batch: int = 256,
        max_tokens_in_memory: int | None = None,
        max_context: int | None = None,
        share_prefixes: bool = True,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        threads: int | None = None,
        seed: int | None = None,
        version: int = 0,
        lockstep: bool = False,
        beside: LocalEngine | None = None,
        speculate: Speculation | None = None,
        precision: Precision = "full",
        cuda_graphs: bool = True,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        source, self.codec = _source(model, codec, dtype)
        """Its tokenizer."""
        decoder = decoder_of(source, dtype, torch.device(device))
        self._round = _rounding(source, precision)
        if precision != "full":
            decoder.load(self._round(source.state_dict()))
        self._weights = fingerprint(self._round(source.state_dict()))
        context = min(max_context or decoder.max_context, decoder.max_context)
        memory = max_tokens_in_memory or _default_memory(decoder, max_batch, context)
        if max_batch < 1 or memory < 2:
            raise EngineError(f"max_batch is {max_batch} and max_tokens_in_memory {memory}; both must be positive.")
        kept = memory // 4 if share_prefixes else 0
        max_top = min(decoder.vocab_size, _MAX_TOP)
        limits = AdmissionLimits(max_batch, memory - kept, kept - kept // 2, context, max_top, commons=kept // 2)
        self.capabilities = Capabilities(frozenset((*_GIVES, *_DOES)), context, max_top)
        """What it can do."""
        self._rng = np.random.default_rng(seed)
        speculator = None if speculate is None else _speculator(speculate, Target(decoder, self.codec))
        self.speculation = None if speculator is None else speculator.counts
        """How many tokens were guessed and how many guesses were right; None without speculation."""
        turns = beside._worker.turns if beside is not None else Turns() if lockstep else None
        self._worker = Worker(
            Core(decoder, self.codec, limits, version, speculator, cuda_graphs=cuda_graphs), turns=turns
        )
        self._fresh: list[LocalRun] = []
        self._watchdog = Watchdog(self)
        self._table: tuple[int, FloatArray] | None = None
        # An engine that is dropped without close() must not leave its thread behind.
        weakref.finalize(self, self._worker.shutdown)

    @property
    def prefixes(self) -> PrefixCounts:
        """What became of kept prefixes."""
        return self._worker.core.prefixes

    @property
    def version(self) -> int:
        """Version of the weights that write now."""
        return self._worker.core.version

    def submit(self, request: Request) -> LocalRun:
        """Start a request; it begins with the engine's next step."""
        if self._worker.closed:
            raise EngineError("The engine is closed; make a new one.")
        vocab, limits = self._worker.core.decoder.vocab_size, self._worker.core.limits
        ids = check_tokens(request.prefix, vocab, "prefix")
        check_sampling(request.sampling, vocab)
        top = top_wanted(request.want, limits.max_top)
        limit = check_room(request, len(ids), limits.max_context, limits.budget)
        key = passed_over(stream_key(self._seed(request.sampling)), request.sampling.offset)
        run = LocalRun(request, ids, limit, key, top)
        run.ask_stop = self._stop
        if not self._fresh:
            # One order for everything submitted in this turn of the loop, so that a group starts as one batch.
            run.loop.call_soon(self._flush)
            self._watchdog.wake(run.loop)
        self._fresh.append(run)
        return run

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Log-probs of tokens[start:]; start must be 1 or more, since the first token follows nothing."""
        if self._worker.closed:
            raise EngineError("The engine is closed; make a new one.")
        core = self._worker.core
        ids = check_tokens(tokens, core.decoder.vocab_size, "tokens to score")
        if top_wanted(want, core.limits.max_top):
            raise EngineError(
                "The local engine scores entropy and hidden states, not alternatives; drop 'top' from want."
            )
        if not 1 <= start <= len(ids):
            raise EngineError(f"start is {start}; it must be from 1 to the {len(ids)} tokens given.")
        if len(ids) > core.limits.max_context:
            raise EngineError(
                f"{len(ids)} tokens exceed the context of {core.limits.max_context}; score a shorter text."
            )
        done: asyncio.Future[Scored] = asyncio.get_running_loop().create_future()
        entropy = any(w.startswith("entropy") for w in want)
        self._worker.score(ScoreJob(ids, start, entropy, "hidden" in want, done))
        return await done

    async def embeddings(self) -> FloatArray:
        """The input-embedding table; read once per version of the weights."""
        if self._worker.closed:
            raise EngineError("The engine is closed; make a new one.")
        if self._table is None or self._table[0] != self.version:

            def work() -> None:
                core = self._worker.core
                table = core.decoder.embeddings[: core.decoder.vocab_size].to("cpu", torch.float32, copy=True).numpy()
                table.flags.writeable = False
                self._table = core.version, table

            await self._worker.ask(work)
        assert self._table is not None
        return self._table[1]

    async def pause(self) -> None:
        """Stop making tokens; runs inside keep what they have."""
        self._flush()
        await self._worker.ask(lambda: setattr(self._worker, "paused", True))

    async def resume(self) -> None:
        """Go on."""
        await self._worker.ask(lambda: setattr(self._worker, "paused", False))

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Take a state dict, a Hugging Face model or a folder under a new version; all or nothing."""
        state = self._round(_state_of(weights))
        if version <= self.version:
            raise EngineError(f"Version {version} is not above the present {self.version}; versions only grow.")

        def work() -> News:
            try:
                news = self._worker.core.update(state, version, caches)
            except ModelError as error:
                raise EngineError(str(error)) from error
            self._weights = fingerprint(state)
            return news

        self._flush()
        await self._worker.ask(work)

    async def forget(self) -> None:
        """See `Forgetful`."""
        self._flush()
        await self._worker.ask(self._worker.core.forget)

    @property
    def spared(self) -> int:
        """See `HandsOver`."""
        return self.prefixes.spared

    async def export_prefixes(
        self, texts: Sequence[Array], *, below: bool = False
    ) -> tuple[Offered, PrefixBlocks | None]:
        """See `HandsOver`."""
        self._flush()
        return await exported(self._worker, lambda: self._weights, texts, below=below)

    async def import_prefixes(self, blocks: PrefixBlocks) -> Taken:
        """See `HandsOver`."""
        return await imported(self._worker, lambda: self._weights, blocks)

    async def learn(self) -> None:
        """Train the drafter on all it has seen, now; else it is done while there is nothing else to do."""

        def work() -> None:
            while self._worker.core.learn():
                pass

        self._flush()
        await self._worker.ask(work)

    async def close(self) -> None:
        """End every run with what it has and release the memory."""
        self._flush()
        if not self._worker.closed:
            await self._worker.ask(self._worker.close)

    def at_work(self) -> int | None:
        """Steps so far; None while there is nothing to do."""
        busy = (self._worker.core.busy or self._fresh) and not self._worker.paused
        return self._worker.core.steps if busy else None

    def doing(self) -> str:
        """What it is at, for people."""
        core = self._worker.core
        return (
            f"the local engine has {len(core.batch)} requests inside and {len(core.queue)} waiting, {self._worker.at()}"
        )

    def _seed(self, sampling: Sampling) -> int:
        return int(self._rng.integers(1 << 63)) if sampling.seed is None else sampling.seed

    def _flush(self) -> None:
        if self._fresh:
            runs, self._fresh = self._fresh, []
            try:
                self._worker.submit(runs)
            except Exception as error:  # no thread can be started: whoever waits is told
                for run in runs:
                    run.end(EngineError(f"The engine cannot start: {error}"))

    def _stop(self, run: LocalRun, finish: Finish) -> None:
        self._flush()
        self._worker.stop(run, finish)


def _source(
    model: str | Path | LoadedModel | PreTrainedModel, codec: Codec | None, dtype: torch.dtype
) -> tuple[PreTrainedModel, Codec]:
    if isinstance(model, (str, Path)):
        # Nobody trains this copy, so it need not be finer than what computes.
        model = load_model(str(model), dtype if dtype in HALF else torch.float32)
    if isinstance(model, LoadedModel):
        return model.model, codec or model.codec
    if codec is None:
        raise EngineError("A bare model needs its codec: pass codec=HFCodec(tokenizer), or a name `load_model` knows.")
    return model, codec


def _speculator(how: Speculation, target: Target) -> Speculator:
    if why := why_no_trees(target):
        raise EngineError(f"speculate needs a model that reads trees of guesses, and with this one {why}; leave it out")
    return Speculator(how, target)


def _rounding(model: PreTrainedModel, precision: Precision) -> Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]:
    """What is done to weights before they are taken."""
    check_precision(precision)
    if precision == "full":
        return lambda state: state
    names = frozenset(linear_weights(model))
    return lambda state: rounded_state(state, names, precision)


def _default_memory(decoder: Decoder, max_batch: int, context: int) -> int:
    per_token = sum(s.floats for s in decoder.shapes) * decoder.dtype.itemsize
    free = free_memory(decoder.device) // 4 // per_token
    return max(context * 2, min(max_batch * context * 4 // 3, free))


def _state_of(weights: Any) -> Mapping[str, Tensor]:
    if isinstance(weights, torch.nn.Module):
        return weights.state_dict()
    if isinstance(weights, (str, Path)):
        return read_weights(Path(weights))
    if isinstance(weights, Mapping):
        return weights  # pyright: ignore[reportUnknownVariableType]
    raise EngineError(f"Weights must be a state dict, a model or a folder, not {type(weights).__name__}.")
