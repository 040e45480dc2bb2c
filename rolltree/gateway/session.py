"""A session of a client: its calls are sampled by an engine and written into its item's tree."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rolltree.engine.protocol import Codec, Engine, EngineError, Generation, Request, Sample, Sampling, token_codec
from rolltree.engine.samples import join
from rolltree.engine.texts import tokens_of
from rolltree.gateway.answer import CallAnswer, read, shown
from rolltree.gateway.ask import Ask, size_of
from rolltree.gateway.choosing import AnswerChoice, best_of
from rolltree.gateway.contexts import ContextPrompt, Contexts
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.record import CallRecord, RecordedCall
from rolltree.gateway.request import beside
from rolltree.gateway.template import Template
from rolltree.task.protocol import Item
from rolltree.tree import Node, Tree

OnText = Callable[[str], Awaitable[None]]
"""Takes the text of an answer as it grows, in pieces."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How a call wants to be answered."""

    sampling: Sampling
    n: int = 1
    top: int = 0
    """How many alternatives of each token to report."""


@dataclass(frozen=True, slots=True)
class SessionReply:
    """What a call is answered."""

    call: int
    prompt: ContextPrompt
    samples: tuple[Sample, ...]
    answers: tuple[CallAnswer, ...]


@dataclass(repr=False)
class GatewaySession:
    """One rollout of one item, made by a program that we know nothing of."""

    name: str
    engine: Engine
    template: Template
    tree: Tree
    now: Callable[[], float] = time.monotonic
    choice: AnswerChoice | None = None
    """Several answers to each call are sampled, and this says which one is handed over."""
    item: Item | None = None
    contexts: Contexts = field(init=False)
    record: CallRecord = field(init=False)
    touched: float = field(init=False)
    busy: int = 0
    """Calls that are being answered."""
    spent: int = 0
    """Tokens that were sampled for it."""
    ended: str = ""
    """Why no call is answered any more."""
    on_outcome: Callable[[Tree], None] | None = None
    """Told of the tree once something was said of the outcome: an end, or a reward."""
    leaving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Calls whose client has gone, until what they had sampled is written down."""

    def __post_init__(self) -> None:
        self.contexts = Contexts(self.codec, self.template, lambda text: tokens_of(self.engine, text, "a call"))
        self.record = CallRecord(self.tree, self.name, self.now)
        self.touched = self.now()

    @property
    def codec(self) -> Codec:
        """The tokenizer."""
        return token_codec(self.engine, "the gateway")

    async def call(self, ask: Ask, draw: Draw, on_text: OnText | None = None) -> SessionReply:
        """Answer one call. Cancelled, it stops what is being sampled and keeps it, as tokens nobody took."""
        if self.ended:
            raise GatewayError(f"session {self.name!r} has ended ({self.ended}); open another", 409)
        self.touched = self.now()
        prompt, choice = await beside(lambda: self._placed(ask), size_of(ask)), self.choice
        if self.ended:  # while it was placed
            raise GatewayError(f"session {self.name!r} has ended ({self.ended}); open another", 409)
        want = frozenset({f"top:{draw.top}"} if draw.top else ())
        if missing := self.engine.capabilities.lacking(want):
            raise GatewayError(f"this engine cannot report {missing[0]}; leave top_logprobs out or ask for fewer")
        if choice is not None:
            if draw.n > 1:
                raise GatewayError(f"this server chooses the best of {choice.answers} answers by itself; leave n out")
            draw, want = replace(draw, n=choice.answers), want | choice.scorer.want
        runs = self._submitted(prompt, draw, want)
        call = self.record.asked(prompt)
        whole = on_text is None or bool(ask.tools) or choice is not None
        self.busy += 1
        try:
            samples = await self._sampled(call, runs, draw.sampling.stop, None if whole else on_text)
            self.spent += sum(len(sample.actions) for sample in samples)
            if choice is not None:
                one, answer = await self._chosen(call, samples, choice, draw.sampling.stop)
                return SessionReply(call.number, prompt, (one,), (answer,))
        finally:
            self.busy -= 1
            self.touched = self.now()
        answers = [self._said(call, sample, draw.sampling.stop)[0] for sample in samples]
        return SessionReply(call.number, prompt, tuple(samples), tuple(answers))

    def rewarded(self, reward: float, call: int | None = None) -> None:
        """A reward for one call: the `step_reward` of its answers."""
        if call is None or not 0 <= call < len(self.record.calls):
            raise GatewayError(f"session {self.name!r} has no call {call}; it has {len(self.record.calls)}", 404)
        for node in self.record.calls[call].answers.values():
            if node.id not in self.record.passed:
                node.scores["step_reward"] = node.scores.get("step_reward", 0.0) + reward
        self._told()

    def end(self, reward: float | None, why: str, parts: dict[str, float] | None = None) -> list[Node]:
        """End the session: every context's last node gets the outcome; without a reward they have failed."""
        if self.ended:
            raise GatewayError(f"session {self.name!r} has ended already ({self.ended})", 409)
        self.ended = why
        ends = self.record.ends()
        for node in ends:
            if reward is None:
                self.tree.close(node, "failed", "error", why, at=self.now(), session=self.name)
            else:
                node.scores.update({**(parts or {}), "reward": reward})
                node.finish = node.finish or "stop"
                self.tree.event("verify", node, why, at=self.now(), reward=reward, session=self.name)
        if not ends:
            self.tree.event("fail" if reward is None else "note", None, f"{self.name}: {why}, and nothing was sampled")
        self._told()
        return ends

    # -- inside ----------------------------------------------------------------------------------------------------

    def _told(self) -> None:
        if self.on_outcome is not None:
            self.on_outcome(self.tree)

    def _placed(self, ask: Ask) -> ContextPrompt:
        try:
            prompt = self.contexts.place(ask)
        except EngineError as error:
            raise GatewayError(str(error)) from None
        size, most = self.codec.vocab_size, self.engine.capabilities.max_context
        if not len(prompt.ids):
            raise GatewayError("the call is empty: there is no token to go on from")
        if len(prompt.ids) >= most:
            raise GatewayError(f"the call has {len(prompt.ids)} tokens and leaves no room in a context of {most}")
        if ask.ids is not None and not 0 <= int(prompt.ids.min()) <= int(prompt.ids.max()) < size:
            raise GatewayError(f"the call has token ids outside of 0 to {size - 1}")
        return prompt

    def _submitted(self, prompt: ContextPrompt, draw: Draw, want: frozenset[str]) -> list[Generation]:
        room = self.engine.capabilities.max_context - len(prompt.ids)
        runs: list[Generation] = []
        for i in range(draw.n):
            sampling = draw.sampling
            seed = None if sampling.seed is None else sampling.seed + i
            each = replace(sampling, max_tokens=min(sampling.max_tokens, room), seed=seed)
            try:
                runs.append(self.engine.submit(Request(prompt.ids, each, want, self.tree.id)))
            except EngineError as error:
                for run in runs:
                    run.stop("abort")
                raise GatewayError(str(error)) from None
        return runs

    async def _sampled(
        self, call: RecordedCall, runs: Sequence[Generation], stops: Sequence[str], on_text: OnText | None
    ) -> list[Sample]:
        """All answers to a call; where the client or the engine is gone, what exists is kept."""
        try:
            if on_text is None:
                return [await run for run in runs]
            return [await self._streamed(runs[0], stops, on_text)]
        except (asyncio.CancelledError, ConnectionError):
            await asyncio.shield(self._left(call, runs))
            raise
        except Exception as error:
            for run in runs:
                run.stop("abort")
            why = f"the engine: {type(error).__name__}: {error}"
            self.tree.event("fail", call.end, why, at=self.now(), session=self.name, call=call.number)
            raise

    async def _chosen(
        self, call: RecordedCall, samples: Sequence[Sample], choice: AnswerChoice, stops: Sequence[str]
    ) -> tuple[Sample, CallAnswer]:
        """Write all answers down, score them, and hand over the best. Later calls go on from that one alone."""
        first = -1 - len(self.record.own)
        nodes = [self.record.answered(call, sample, first - i) for i, sample in enumerate(samples)]
        asked = call.prompt.text or self.codec.decode(call.prompt.ids)
        texts = [shown(self.codec, sample, stops) for sample in samples]
        try:
            values = await choice.values(self.tree, self.item, asked, list(zip(nodes, texts, strict=True)))
            best = best_of(self.tree, nodes, values, at=self.now(), session=self.name)
        except BaseException as error:
            for node in nodes:
                if node.status == "done":
                    self.record.given_up(node, str(error) or type(error).__name__)
            raise
        at = nodes.index(best)
        answer, turn = self._kept(call, samples[at], stops)
        self.record.handed_over(call, best, turn)
        return samples[at], answer

    async def _streamed(self, run: Generation, stops: Sequence[str], on_text: OnText) -> Sample:
        parts: list[Sample] = []
        told = ""
        async for part in run:
            parts.append(part)
            text = shown(self.codec, join(parts), stops)
            # What may yet become another letter or the stop string is not said before that is known.
            safe = text.rstrip("\ufffd")
            safe = safe[: max(len(told), len(safe) - max(map(len, stops), default=0))]
            if safe.startswith(told) and len(safe) > len(told):
                await on_text(safe[len(told) :])
                told = safe
        sample = await run
        text = shown(self.codec, sample, stops)
        if text[len(told) :]:
            await on_text(text[len(told) :])
        return sample

    def _said(self, call: RecordedCall, sample: Sample, stops: Sequence[str]) -> tuple[CallAnswer, Node]:
        answer, turn = self._kept(call, sample, stops)
        return answer, self.record.answered(call, sample, turn)

    def _kept(self, call: RecordedCall, sample: Sample, stops: Sequence[str]) -> tuple[CallAnswer, int]:
        """An answer that later calls may go on from, and the number of its turn."""
        prompt = call.prompt
        name = f"call_{self.name}_{len(self.contexts.turns)}"
        answer = read(self.codec, self.template, prompt.ask, sample, stops, name)
        return answer, self.contexts.said(prompt, sample.actions, answer.text, answer.message or None).number

    def _left(self, call: RecordedCall, runs: Sequence[Generation]) -> asyncio.Task[None]:
        """Stop a call whose client has gone. Who waits may be cancelled again: a broken pipe comes with a hang-up."""
        for run in runs:
            run.stop("abort")
        task = asyncio.create_task(self._given_up(call, runs))
        self.busy += 1
        self.leaving.add(task)
        task.add_done_callback(self._gone)
        return task

    def _gone(self, task: asyncio.Task[None]) -> None:
        self.busy -= 1
        self.leaving.discard(task)

    async def _given_up(self, call: RecordedCall, runs: Sequence[Generation]) -> None:
        for run in runs:
            with suppress(Exception):  # a dead engine: nothing more to keep
                sample = await run
                self.spent += len(sample.actions)
                self.record.given_up(self._said(call, sample, ())[1])
