"""An engine that answers each request by a search: a strategy grows a tree on the prompt, its best path is the answer.

Such an answer is chosen, not drawn: its `sampling_logprob` is NaN and nothing of it is trained on. What it cost stands
in the trees of its search, which `on_search` is told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rolltree.control.ledger import Limits
from rolltree.engine.protocol import (
    Caches,
    Capabilities,
    Codec,
    Engine,
    EngineError,
    Request,
    Sample,
    Scored,
    exact_text,
    token_codec,
)
from rolltree.engine.run import ToldRun
from rolltree.engine.samples import nothing
from rolltree.generate.choose import choice
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.final import final_answer
from rolltree.task.items import SingleTurn, TaskError, digest
from rolltree.task.protocol import Item, Split, Verdict
from rolltree.tree import Forest, Node, Tree
from rolltree.tree.node import Array, Finish

ONE_AT_A_TIME = frozenset({"hook", "offset", "stream", "greedy", "entropy:full", "top", "hidden"})
"""What an engine does for single samples and a search does not do for its answer."""


@dataclass(frozen=True, slots=True)
class PromptTask(SingleTurn):
    """A prompt that nobody knows the answer of; what an answer says is read from its text."""

    stop: tuple[str, ...] = ()
    max_tokens: int = 256
    name: str = "asked"
    level: int = 0
    max_turns: int = 0

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """None: prompts come from requests."""
        del split, seed
        return iter(())

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Refused: nobody knows the answers of its items."""
        raise TaskError(f"nothing says whether an answer to {item.id!r} is right; ask with a task that knows answers")

    def answer_in(self, item: Item, text: str) -> str | None:
        """What votes compare."""
        del item
        return final_answer(text)


class SearchedRun(ToldRun):
    """A search under way. Stopped, it ends with the best of what was finished, or with nothing."""

    stopped: Finish | None = None
    task: asyncio.Task[None] | None = None

    def _halt(self, finish: Finish) -> None:
        self.stopped = self.stopped or finish
        if self.task is not None:
            self.task.cancel()

    def left(self, task: asyncio.Task[None]) -> None:
        """Its search is over: where that has not said how, as when it was stopped before it began, this does."""
        error = None if task.cancelled() else task.exception()
        self.settle(nothing(self.stopped or "abort") if error is None else error)


@dataclass(repr=False)
class SearchedEngine:
    """Engine around an engine. `tokens` bounds what one answer may cost over all its branches."""

    inner: Engine
    strategy: TreeStrategy
    tokens: int | None = None
    seed: int = 0
    peers: Mapping[str, Engine] = field(default_factory=dict[str, Engine])
    on_search: Callable[[Forest], None] | None = None
    """Told of the trees of each search once it has ended."""
    asked: int = 0

    @property
    def capabilities(self) -> Capabilities:
        """The engine's own, but for what only single samples have."""
        own = self.inner.capabilities
        return replace(own, features=own.features - ONE_AT_A_TIME, samples_exactly=False)

    @property
    def codec(self) -> Codec:
        """The engine's tokenizer."""
        return token_codec(self.inner, "an engine that searches")

    @property
    def version(self) -> int:
        """Of the weights that write now."""
        return self.inner.version

    def submit(self, request: Request) -> SearchedRun:
        """Begin a search on the request's prefix."""
        if missing := self.capabilities.lacking(request.want):
            raise EngineError(f"an answer that is searched for has no {missing[0]}; ask the engine itself")
        if request.sampling.hook is not None:
            raise EngineError("an answer that is searched for takes no logits hook; ask the engine itself")
        room = self.capabilities.max_context - len(request.prefix)
        if room < 1:
            raise EngineError(f"the prompt has {len(request.prefix)} tokens and leaves no room for an answer")
        self.asked += 1
        run = SearchedRun(request)
        run.begun = True
        run.task = asyncio.create_task(self._search(run, self.asked, room))
        run.task.add_done_callback(run.left)
        return run

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """By the engine itself."""
        return await self.inner.score(tokens, start, want)

    async def pause(self) -> None:
        """By the engine itself."""
        await self.inner.pause()

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """By the engine itself."""
        await self.inner.update_weights(weights, version, caches=caches)

    async def resume(self) -> None:
        """By the engine itself."""
        await self.inner.resume()

    async def close(self) -> None:
        """By the engine itself."""
        await self.inner.close()

    async def _search(self, run: SearchedRun, number: int, room: int) -> None:
        request, forest = run.request, Forest()
        draw = request.sampling
        ids = np.asarray(request.prefix, np.int32)
        # Streams of randomness follow from the tree's name: an answer depends on prompt and seed alone.
        named = "asked/" + digest(f"{ids.tobytes().hex()} {draw.seed}")
        item = Item(named, exact_text(self.codec, ids), None)
        tree = forest.plant(item.id, ids, task="asked", item=item.id)
        asked = PromptTask(draw.stop, min(draw.max_tokens, room))
        try:
            await grow(
                self.strategy, self.inner, asked, [item], seed=self.seed + number if draw.seed is None else draw.seed,
                budget=Limits(decoded=self.tokens), sampling=replace(draw, seed=None), peers=self.peers, forest=forest,
            )  # fmt: skip
            run.end(*self._told(tree, None))
        except asyncio.CancelledError:
            run.end(*self._told(tree, run.stopped or "abort"))
        except Exception as error:
            run.end(error)
        finally:
            if self.on_search is not None:
                self.on_search(forest)

    def _told(self, tree: Tree, stopped: Finish | None) -> tuple[Sample | Exception, Sample | None]:
        best = choice(tree).leaf
        if best is None:
            if stopped is not None:
                return nothing(stopped), None
            crashed = tree.notes.get("failed")
            why = f"crashed: {crashed}" if crashed else "finished no rollout; give it more tokens"
            return EngineError(f"the search by {type(self.strategy).__name__} {why}"), None
        sample = self._sample(tree, best)
        return sample, sample

    def _sample(self, tree: Tree, leaf: Node) -> Sample:
        path = tree.path(leaf)
        start = max(i for i, node in enumerate(path) if node.role == "prompt")
        wrote = path[start + 1 :]
        count = sum(len(node) for node in wrote)
        logp = [node.logp if node.logp is not None else np.full(len(node), np.nan, np.float32) for node in wrote]
        version = [node.version if node.version is not None else np.full(len(node), self.version) for node in wrote]
        return Sample(
            np.concatenate([np.zeros(0, np.int32), *(node.actions for node in wrote)]).astype(np.int32),
            np.concatenate([np.zeros(0, np.float32), *logp]).astype(np.float32), np.full(count, np.nan, np.float32),
            np.concatenate([np.zeros(0, np.int32), *version]).astype(np.int32), leaf.finish or "stop",
            stopped_by=str(leaf.notes.get("stopped_by", "")), keep=np.zeros(count, np.bool_),
        )  # fmt: skip
