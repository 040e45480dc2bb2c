"""One episode of a verifiers environment, held where it waits for its agent.

All coroutines here run in the one event loop that `threads.awaited` keeps for other people's asynchronous code.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from rolltree.task.foreign.verifiers_parts import commit_reply, library, messages_of, new_trace, refuse_demands, typed
from rolltree.task.items import TaskError

Messages = Sequence[Any]
_under_way: set[asyncio.Task[None]] = set()
_OVER = "rollout_ended"
"""Why a trace stopped that ended with the rollout and not by the environment."""


class Play:
    """An environment that can be begun, answered and finished, again and again. Dropping it ends its episode."""

    def __init__(self, env: Any, role: str) -> None:
        self._env, self._role = env, role
        self._game: Game | None = None

    async def begin(self, task: Any) -> tuple[Any, Messages]:
        """Begin an episode: the task as the agent gets it, and what the environment says to it first."""
        self.close()
        game = self._game = Game(self._env, self._role, task)
        said = await game.next()
        if said is None:
            raise TaskError(f"{type(self._env).__name__} ended the episode without asking its agent")
        return game.seen, said

    async def answer(self, text: str) -> Messages | None:
        """What the environment says to the agent's words; None where it has ended."""
        assert self._game is not None
        self._game.reply(text)
        return await self._game.next()

    async def finish(self, text: str) -> Any:
        """Deliver last words, if there are any, end the episode and return the agent's scored trace."""
        game = self._game
        assert game is not None
        if not game.ended and text.strip():
            await self.answer(text)
        while not game.ended:
            game.reply(None)
            await game.next()
        return game.trace

    def close(self) -> None:
        """Give the episode up, from any thread."""
        if self._game is not None:
            self._game.cancel()
            self._game = None

    def __del__(self) -> None:
        self.close()


class Game:
    """One episode under way."""

    def __init__(self, env: Any, role: str, task: Any) -> None:
        self.trace: Any = None
        self.seen: Any = None
        """The task as the agent got it."""
        self._env, self._role = env, role
        self._question: asyncio.Future[Messages] = asyncio.get_running_loop().create_future()
        self._reply: asyncio.Future[str | None] | None = None
        self._playing = asyncio.ensure_future(self._run(task))
        # Kept here until it has ended: a coroutine that is collected while it waits ends outside its loop.
        _under_way.add(self._playing)
        self._playing.add_done_callback(_under_way.discard)

    @property
    def ended(self) -> bool:
        """Whether the environment has nothing more to say."""
        return self._playing.done()

    async def next(self) -> Messages | None:
        """Wait until the environment asks or ends; what it raises is raised here."""
        await asyncio.wait([self._playing, self._question], return_when=asyncio.FIRST_COMPLETED)
        if self._question.done():
            return self._question.result()
        await self._playing
        return None

    def reply(self, text: str | None) -> None:
        """Answer what was asked; None = the rollout is over."""
        assert self._reply is not None
        self._question = asyncio.get_running_loop().create_future()
        self._reply.set_result(text)

    def cancel(self) -> None:
        """End it wherever it stands, from any thread."""
        with suppress(RuntimeError):  # the loop has been closed
            self._playing.get_loop().call_soon_threadsafe(self._playing.cancel)

    async def ask(self, messages: Messages) -> str | None:
        """The rollout's answer to the environment."""
        self._reply = asyncio.get_running_loop().create_future()
        self._question.set_result(messages)
        return await self._reply

    def seat(self, task: Any) -> PlayedRun:
        """The one conversation of an episode."""
        if self.trace is not None:
            raise TaskError(
                f"{type(self._env).__name__} opens a second conversation with its agent in one episode, and a rollout "
                "here is one; run it with verifiers"
            )
        config = getattr(self._env.config, self._role)
        self.seen, self.trace = task, new_trace(task, self._role, config)
        return PlayedRun(self, task, self.trace, config)

    async def _run(self, task: Any) -> None:
        """What verifiers does for an episode, with our agent in it."""
        vf = library()
        from verifiers.v1 import episode as episodes

        about = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = episodes.Episode(env=episodes.EnvInfo(id=self._env.config.env_id), task=about)
        agents = vf.Agents(self._env.config, lambda name, config: Player(self, config))
        await self._env.setup(agents)
        await self._env.run(task, agents)
        episode.traces.append(self.trace)
        await self._env.finalize(task, episode)


@atexit.register
def _end_all() -> None:
    if _under_way:
        loop = next(iter(_under_way)).get_loop()
        for playing in list(_under_way):
            loop.call_soon_threadsafe(playing.cancel)
        asyncio.run_coroutine_threadsafe(asyncio.wait(list(_under_way), timeout=1), loop).result()


class Player:
    """The agent an environment talks to (as far as `verifiers.v1.Agent` is talked to)."""

    def __init__(self, game: Game, config: Any) -> None:
        self.config = config
        self.trainable = True
        self._game = game

    @asynccontextmanager
    async def interaction(self, task: Any, **borrowed: Any) -> AsyncGenerator[Any]:
        """A conversation turn by turn; leaving it scores the trace by the task's own rewards."""
        for name in ("runtime", "tools"):
            if borrowed.get(name):
                raise TaskError(f"the environment lends its agent {name}, and a rollout here takes none")
        refuse_demands(type(task).__name__, task)
        run = self._game.seat(task)
        if (watch := borrowed.get("on_trace")) is not None:
            watch(run.trace)
        interaction = library().Interaction(run)
        try:
            yield interaction
        except Exception as error:
            run.fail(error)
            raise
        finally:
            if not run.closed:
                await interaction.close()

    async def run(self, task: Any, **borrowed: Any) -> Any:
        """A conversation of one turn."""
        borrowed.pop("collect_artifacts", None)
        async with self.interaction(task, **borrowed) as interaction:
            await interaction.turn()
        return interaction.trace


class PlayedRun:
    """What `verifiers.v1.Interaction` drives: a rollout without a harness, a runtime or a model server."""

    def __init__(self, game: Game, task: Any, trace: Any, config: Any) -> None:
        from verifiers.v1 import session

        self.trace = trace
        self.closed = False
        self._game, self._task = game, task
        self._failed = False
        self._history = typed(messages_of(task.data))
        self._session = session.RolloutSession(
            ctx=None, trace=trace, trace_stops=_stops(task), limits=session.RolloutLimits(max_turns=config.max_turns)
        )

    @property
    def ok(self) -> bool:
        """Whether it can go on."""
        return not self._failed and self.trace.stop_condition is None

    async def step(self, messages: Messages | None = None, *, on_input: Any = None) -> bool:
        """One turn of the agent, unless a limit or a stop of the task refuses it."""
        if self.closed or not self.ok or await self._session.refused():
            return False
        text = await self._game.ask(messages or ())
        if text is None:
            self.trace.stop(_OVER)
            return False
        self._history += messages or ()
        self._history.append(commit_reply(self.trace, self._history, text))
        return True

    def fail(self, error: Exception) -> None:
        """The environment crashed in the middle of the conversation."""
        self._failed = True
        self.trace.record_error(error)

    async def close(self) -> Any:
        """Score it."""
        if not self.closed:
            self.closed = True
            if not self._failed:
                await self._task.score(self.trace)
            self.trace.is_completed, self.trace.ok = True, not self._failed
        return self.trace


def content_of(message: Any) -> str:
    """The text of a message."""
    if not isinstance(message.content, str):
        raise TaskError(f"the environment says {message.content!r}, and only text is read here")
    return message.content


def _stops(task: Any) -> list[Any]:
    """The task's stop conditions on its trace; hooks on requests and responses have nothing to hook into here."""
    from verifiers.v1 import session, types
    from verifiers.v1.utils import decorators

    stops = [(session.hook_boundary(stop, allow_trace=True), stop) for stop in task.hooks("stop")]
    if any(where in (types.Request, types.Response) for where, _ in stops) or decorators.discover_decorated(
        task, "intercept"
    ):
        raise TaskError(f"{type(task).__name__} changes requests or responses of a model server; run it with verifiers")
    return [stop for _, stop in stops]
