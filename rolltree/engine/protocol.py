"""The engine contract: actions in, actions out (token ids of a language policy, latents of a denoiser).

An engine extends prefixes and scores them; it never sees a task, a tree or a strategy. Every sample reports, per
action, the log-prob under the policy (`logp`: of tokens, full softmax at temperature 1; of latents, the density of a
step at the noise it was drawn with), the log-prob under the distribution it was really drawn from (`sampling_logprob`)
and the weight version that wrote it. Stopping a run returns what exists, also when that is nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rolltree.errors import RolltreeError
from rolltree.tree.node import Array, Finish, FloatArray, Top

IntArray = NDArray[np.int32]
Caches = Literal["keep", "recompute"]
"""What becomes of prefix caches made under old weights: kept (runs in flight mix versions) or recomputed."""


Forks = Literal["none", "maybe", "planned"]
"""Whether somebody will go on from what a request writes: nobody once it has ended by itself, perhaps, or surely."""


class LogitsHook(Protocol):
    """Changes the sampling distribution at each step: forbid tokens, change the temperature, follow a guide."""

    def __call__(self, generated: Sequence[Any], logits: Any) -> Any:
        """Given this request's actions so far and its row of raw logits (a 1-d tensor or array), return new logits.

        An engine of latents gives the mean of the next step instead, and draws around what comes back.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw. Temperature 0 is greedy (a step without noise): `sampling_logprob` is then NaN, never 0."""

    max_tokens: int = 256
    """Most actions."""
    temperature: float = 1.0
    """Of latents, the factor on the noise of a step."""
    top_p: float = 1.0
    top_k: int = 0
    """0 = no limit."""
    stop: tuple[str, ...] = ()
    """Strings that end the sample as soon as the decoded text contains one; they are part of it."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end the sample; part of it. The codec's eos always ends it unless `ignore_eos`."""
    ignore_eos: bool = False
    seed: int | None = None
    """Stream of randomness of this request alone: the sample does not depend on what else is in the batch."""
    hook: LogitsHook | None = None
    offset: int = 0
    """Draws of the seed's stream to pass over: what continues an interrupted request draws what that would have drawn.
    Only where the engine has the feature "offset"."""


@dataclass(frozen=True, slots=True)
class Request:
    """Extend `prefix`. `want` names extras: "entropy", "top:K", "hidden" (last layer, at the last token)."""

    prefix: Array
    sampling: Sampling = field(default_factory=Sampling)
    want: frozenset[str] = frozenset()
    affinity: str = ""
    """Requests with the same affinity share prefixes; a router keeps them together. Survives continuation. The local
    engine lets those of the affinity in first that it has known longest, so that trees end together."""
    forks: Forks = "maybe"
    """What a cache of prefixes keeps of it: "none" nothing behind the prefix, "planned" rather this than others."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What an engine wrote: arrays with one entry per action."""

    actions: Array
    logp: FloatArray
    sampling_logprob: FloatArray
    version: IntArray
    finish: Finish
    """eos, stop, length, abort; "error" never: an engine failure is raised."""
    stopped_by: str = ""
    """The stop string that fired."""
    entropy: FloatArray | None = None
    top: Top | None = None
    hidden: FloatArray | None = None
    keep: NDArray[np.bool_] | None = None
    """Which actions may be trained on, where not all: a step without noise has no density, a draw from a fixed prior
    does not depend on the weights."""
    prefilled: int = 0
    """Prefix tokens computed for this request (those found in a cache are not counted)."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probs (and extras) of given actions under the current weights."""

    logp: FloatArray
    version: int
    entropy: FloatArray | None = None
    hidden: FloatArray | None = None


class Generation(Protocol):
    """A request in flight: await it for the whole sample, iterate it for increments, stop it to keep what exists."""

    def __await__(self) -> Generator[Any, None, Sample]:
        """The whole sample once it has ended."""
        ...

    def __aiter__(self) -> AsyncIterator[Sample]:
        """Increments as they appear; their concatenation is the awaited sample."""
        ...

    def stop(self, finish: Finish = "abort") -> None:
        """End it now; awaiting it then gives the tokens made so far. Idempotent; a no-op once ended."""
        ...


@runtime_checkable
class Queued(Protocol):
    """A run that tells whether its engine has taken it up: one that still waits goes elsewhere at no loss."""

    @property
    def begun(self) -> bool:
        """Whether anything was done for it yet."""
        ...


@runtime_checkable
class Channel(Protocol):
    """What goes between a task and an engine: observations become actions, actions become what was made of them.

    Token ids and text of a language policy (`Codec`), labels and latents of a denoiser. What it cannot encode it
    refuses with a `RolltreeError`.
    """

    def encode(self, observation: Any, /) -> Any:
        """Actions that stand for an observation."""
        ...

    def decode(self, actions: Any, /) -> Any:
        """What the actions have made: a text, an image."""
        ...


@runtime_checkable
class Codec(Channel, Protocol):
    """Text to token ids and back. Engine ids are the truth; text is derived and never re-tokenised."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def eos_id(self) -> int:
        """The id that ends a text."""
        ...

    def encode(self, text: str, /) -> list[int]:
        """Ids of a text, with no special tokens added."""
        ...

    def decode(self, ids: Sequence[int] | Array, /) -> str:
        """Text of ids; special tokens are dropped."""
        ...


@runtime_checkable
class ExactCodec(Codec, Protocol):
    """A codec that also shows its special tokens, as those of chat models must be."""

    @property
    def specials(self) -> Mapping[int, str]:
        """Special tokens, by id."""
        ...

    def decode_exact(self, ids: Sequence[int] | Array) -> str:
        """Text of ids, special tokens included."""
        ...


def exact_text(codec: Codec, ids: Sequence[int] | Array) -> str:
    """Text of ids with special tokens, as far as the codec can show them."""
    return codec.decode_exact(ids) if shows_specials(codec) else codec.decode(ids)


def shows_specials(codec: Codec) -> TypeGuard[ExactCodec]:
    """Whether a codec is an `ExactCodec`; asked for every text, and `isinstance` reads a protocol anew each time."""
    return _exact(type(codec))


@cache
def _exact(kind: type) -> bool:
    return all(hasattr(kind, name) for name in ("decode_exact", "specials"))


def stop_text(codec: Codec, ids: Sequence[int] | Array, stops: Sequence[str]) -> str:
    """Text of ids as stop strings are looked for in it: with special tokens where a stop string names one."""
    return codec.decode_exact(ids) if shows_specials(codec) and named(codec, stops) else codec.decode(ids)


def named(codec: Codec, stops: Sequence[str]) -> Mapping[int, str]:
    """Special tokens that stand in stop strings, by id."""
    known = codec.specials if stops and shows_specials(codec) else {}
    return {i: text for i, text in known.items() if any(text in stop for stop in stops)}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; recipes state what they need and are checked against this before the first token."""

    features: frozenset[str]
    """Subset of: entropy:full, top, hidden, score, stream, abort, hook, greedy, update, shared-prefix, versions,
    offset (see `Sampling`), embeddings (see `Embedder`)."""
    max_context: int
    max_top: int = 0
    samples_exactly: bool = True
    """Whether the sampling distribution equals the policy's (False: only argmax is promised)."""

    def lacking(self, needs: frozenset[str]) -> list[str]:
        """Which of the needs ("entropy:full", "top:20", "hidden", "abort", …) this engine cannot meet."""
        return sorted(n for n in needs if not self._meets(n))

    def _meets(self, need: str) -> bool:
        name, _, count = need.partition(":")
        if name == "top":
            return "top" in self.features and int(count or 1) <= self.max_top
        return need in self.features


@runtime_checkable
class Engine(Protocol):
    """A policy that can be sampled and scored. All methods are safe to call concurrently from one event loop."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def codec(self) -> Channel:
        """Its channel: of a language policy, the tokenizer (see `token_codec`)."""
        ...

    @property
    def version(self) -> int:
        """Version of the weights that write now."""
        ...

    def submit(self, request: Request) -> Generation:
        """Start a request. One that can never fit raises EngineError here, before any work."""
        ...

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Log-probs of tokens[start:] given what precedes each, under the current weights."""
        ...

    async def pause(self) -> None:
        """Stop making tokens; runs in flight keep what they have and wait. Returns when the engine is idle."""
        ...

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Take new weights (a state dict or a folder) while paused or between steps, under a new version."""
        ...

    async def resume(self) -> None:
        """Go on after a pause."""
        ...

    async def close(self) -> None:
        """Release everything; runs in flight end as aborted."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """An engine with the feature "embeddings": it can show what its tokens look like to the model."""

    async def embeddings(self) -> FloatArray:
        """The input-embedding table under the current weights, (vocabulary, width); not to be written to."""
        ...


@runtime_checkable
class TellsDraws(Protocol):
    """An engine with steps that draw nothing at any temperature: from there a path cannot fork."""

    def draws(self, prefix: Array, temperature: float) -> bool:
        """Whether what continues this prefix begins with a draw."""
        ...


@runtime_checkable
class Forgetful(Protocol):
    """An engine that can drop what earlier requests left behind, so that later ones are computed as in a new engine."""

    async def forget(self) -> None:
        """Keep no prefixes of earlier requests; requests in flight go on."""
        ...


@runtime_checkable
class Counting(Protocol):
    """An engine that has numbers of its own for a run's log."""

    @property
    def numbers(self) -> Mapping[str, float]:
        """Since it was made, by the names of metrics."""
        ...


@runtime_checkable
class Sleeper(Protocol):
    """An engine that shares a card with its trainer and gives memory back while that learns."""

    @property
    def sleeps(self) -> bool:
        """Whether it was started so that it can."""
        ...

    async def sleep(self) -> None:
        """Give its memory back; nothing is written until it wakes."""
        ...

    async def wake(self) -> None:
        """Take it again, with the weights it had."""
        ...


_CONFORMS: dict[tuple[type, type], bool] = {}


def _conforms(thing: object, protocol: type) -> bool:
    """`isinstance` of a protocol, which reads both anew each time, once for each kind of thing."""
    key = (type(thing), protocol)
    if key not in _CONFORMS:
        _CONFORMS[key] = isinstance(thing, protocol)
    return _CONFORMS[key]


def reads_text(channel: Channel) -> TypeGuard[Codec]:
    """Whether a channel is a `Codec`; asked for every request."""
    return _conforms(channel, Codec)


def tells_draws(engine: Engine) -> TypeGuard[TellsDraws]:
    """Whether an engine is a `TellsDraws`; asked for every request too."""
    return _conforms(engine, TellsDraws)


def token_codec(engine: Engine, who: str = "this") -> Codec:
    """The engine's tokenizer; an engine that writes something else than tokens is refused, naming who reads them."""
    channel = engine.codec
    if not reads_text(channel):
        raise EngineError(
            f"{who} reads tokens, and {type(engine).__name__} writes {getattr(channel, 'kind', 'something else')}; "
            "choose a language model, or a method that reads no tokens"
        )
    return channel


class EngineError(RolltreeError, RuntimeError):
    """The engine cannot do what was asked: names the request, the limit and the way out."""


@runtime_checkable
class OwnEngine(Protocol):
    """A model that brings the engine that samples it in this process; every other is a causal LM of transformers."""

    def engine(self, version: int) -> Engine:
        """The engine on this model, whose weights have this version."""
        ...
