"""vLLM's asynchronous engine as a backend: one call is one request, versions are by vLLM's own word."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from rolltree.engine.protocol import EngineError
from rolltree.engine.segments.weights import handed_over, state_of
from rolltree.engine.segments.wire import Alternatives, Piece, Reach, SegmentRead, SegmentRequest
from rolltree.engine.vllm.adapters import Adapters
from rolltree.engine.vllm.naming import ASKED, BEST
from rolltree.engine.vllm.transfer import Transfer

T = TypeVar("T")
DIED = "vLLM's engine process died; its log says why. Start a new engine."
LOOK = 1.0
"""Seconds after which somebody who waits for vLLM's engine process looks whether it lives."""


class VllmBackend:
    """A running `AsyncLLM` (see `rolltree.engine.segments.Backend`)."""

    def __init__(
        self, llm: Any, vocab: int, alternatives: int, *, of_sampling: bool, version: int,
        transfer: Transfer | None = None, adapters: Adapters | None = None, recording: bool = False,
        updates: bool = True, sleeps: bool = False,
    ) -> None:  # fmt: skip
        served = int(llm.model_config.get_vocab_size())
        if served != vocab:
            llm.shutdown()
            raise EngineError(
                f"the model in vLLM has {served} tokens and the policy's codec {vocab}; start it on the policy's folder"
            )
        self.name = "the vLLM engine"
        self.reach = Reach(
            vocab,
            int(llm.model_config.max_model_len),
            alternatives,
            of_sampling,
            scores=True,
            updates=updates,
            entropy=recording,
            best=alternatives if recording else 0,
        )
        self.version = version
        self.sleeps = sleeps
        """Whether vLLM was started in its sleep mode."""
        self._llm, self._transfer, self._adapters = llm, transfer, adapters
        self._names = itertools.count()
        self._told, self._telling = False, asyncio.Lock()
        self._over: list[str] = []
        """Requests of which vLLM's workers may forget what they recorded."""

    async def write(self, ask: SegmentRequest) -> AsyncGenerator[Piece]:
        """Generate; closing the generator aborts the request in vLLM."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        await self._tell()
        s, name = ask.sampling, self._name()
        params = SamplingParams(
            max_tokens=ask.most, temperature=s.temperature, top_p=s.top_p, top_k=s.top_k, seed=ask.seed,
            stop_token_ids=list(ask.ends), ignore_eos=True, logprobs=ask.alternatives, flat_logprobs=True,
            detokenize=False, output_kind=RequestOutputKind.DELTA, stream_interval=ask.together, skip_clone=True,
            extra_args={ASKED: name, BEST: ask.best} if ask.entropy or ask.best else None,
        )  # fmt: skip
        first, label, written = True, str(self.version), 0
        async with aclosing(self._outputs(name, ask.tokens, params, ask.salt, keep=ask.together > 1)) as outputs:
            async for out in outputs:
                done = out.outputs[0]
                prefilled = 0
                if first and done.token_ids:
                    first, prefilled = False, len(ask.tokens) - (out.num_cached_tokens or 0)
                if any(span.version != label for span in done.weight_versions or ()):
                    raise EngineError(f"vLLM reports other weights than version {label}; update them through Rolltree")
                logp, best = columns(done.logprobs, ask.alternatives)
                told = await self._recorded(name, written, len(done.token_ids)) if ask.entropy or ask.best else ()
                written += len(done.token_ids)
                yield Piece(
                    done.token_ids, logp, [(ids, p) for _, ids, p in told] if ask.best else best, prefilled=prefilled,
                    entropy=[spread for spread, _, _ in told] if ask.entropy else (), finish=done.finish_reason or "",
                )  # fmt: skip

    async def read(self, tokens: Sequence[int], start: int, alternatives: int) -> SegmentRead:
        """Prompt log-probs; vLLM reads none of the prompt from its cache for them."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        await self._tell()
        params = SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=alternatives, flat_logprobs=True, detokenize=False,
            ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True,
        )  # fmt: skip
        async with aclosing(self._outputs(self._name(), tokens, params, None)) as outputs:
            async for out in outputs:
                return SegmentRead(*columns(out.prompt_logprobs[start:], alternatives))
        raise EngineError("vLLM ended a scoring request without an answer")

    async def load(self, weights: Any, version: int) -> None:
        """Let vLLM's workers take the weights in place: adapters alone or from memory where that was set up, else whole
        from a file.
        """
        if self._adapters is not None:
            await self._adapters.load(weights)
        elif self._transfer is not None and not isinstance(weights, (str, Path)):
            await self._transfer.send(state_of(weights))
        else:
            with handed_over(weights) as folder:
                await self._answer(self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)}))
        await self._label(version)

    async def sleep(self) -> None:
        """Weights to the host's memory and no caches. They are kept, because an update may bring adapters alone."""
        await self._llm.sleep(level=1)

    async def wake(self) -> None:
        """Both on the card again."""
        await self._llm.wake_up()

    async def close(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown()
        # vLLM does it again when it is deleted; at Python's end that is among emptied modules.
        self._llm.shutdown = _done

    async def _outputs(
        self, name: str, tokens: Sequence[int], params: Any, salt: str | None, *, keep: bool = False
    ) -> AsyncGenerator[Any]:
        """What vLLM answers to a request, which ends with this generator. With `keep`, a cancellation brings what vLLM
        has made and not handed over, as the last answer (finish "abort"), and is not raised.
        """
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        ended = False
        try:
            under = None if self._adapters is None else self._adapters.request
            coming = await self._llm.add_request(
                name, tokens_input(list(tokens), cache_salt=salt), params, lora_request=under
            )
            while not ended:
                try:
                    out = coming.get_nowait() or await coming.get()
                except asyncio.CancelledError:
                    if not keep:
                        raise
                    await self._llm.abort(name)
                    out = coming.get_nowait()
                    if out is None:
                        raise
                ended = out.finished
                yield out
        except EngineDeadError as error:
            ended = True
            raise EngineError(DIED) from error
        finally:
            if self.reach.entropy:
                self._over.append(name)
            if not ended:
                await self._llm.abort(name)

    async def _recorded(self, name: str, start: int, count: int) -> list[tuple[float, list[int], list[float]]]:
        """What vLLM's workers have recorded at these tokens of a request."""
        over, self._over = self._over, []
        told = await self._answer(
            self._llm.collective_rpc("rolltree_recorded", args=(name, start, start + count, over))
        )
        found: list[Any] = next((one for one in told if one is not None), [])
        if len(found) != count:
            raise EngineError(
                f"vLLM recorded {len(found)} of {count} distributions; its model runner passes logits processors by: "
                "use --engine local for rules on entropy and alternatives"
            )
        return found

    @property
    def _dead(self) -> bool:
        return bool(getattr(self._llm, "errored", False))

    def _name(self) -> str:
        return f"rolltree-{next(self._names)}"

    async def _tell(self) -> None:
        """Label the first weights, once there is a loop to do it in."""
        async with self._telling:
            # No request is written before the label stands, also where several begin together.
            if not self._told:
                await self._label(self.version)

    async def _label(self, version: int) -> None:
        await self._answer(self._llm.update_weight_version(str(version)))
        said = await self._answer(self._llm.get_weight_version())
        if said != str(version):
            raise EngineError(f"vLLM reports weight version {said} after an update to {version}")
        self._told, self.version = True, version

    async def _answer(self, call: Awaitable[T]) -> T:
        """What vLLM's engine process answers; where it dies, vLLM lets such calls wait for ever."""
        asked = asyncio.ensure_future(call)
        try:
            while not (await asyncio.wait({asked}, timeout=LOOK))[0] and not self._dead:
                pass
        finally:
            asked.cancel()
        if self._dead:
            raise EngineError(DIED)
        return asked.result()


def _done() -> None:
    """What is left to shut down of what has been."""


def columns(flat: Any, alternatives: int) -> tuple[list[float], list[Alternatives]]:
    """Log-probs of the tokens themselves, which stand first in each row, and the best alternatives behind them."""
    if flat is None:
        return [], []
    starts, ids, logp = flat.start_indices, flat.token_ids, flat.logprobs
    own = [logp[i] for i in starts]
    if not alternatives:
        return own, []
    return own, [(ids[i + 1 : i + 1 + alternatives], logp[i + 1 : i + 1 + alternatives]) for i in starts]
