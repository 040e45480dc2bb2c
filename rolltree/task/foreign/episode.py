"""Foreign environments as functional tasks: a state is what was said and heard, and an environment that stands there.

An environment that can be copied is copied before each step, so forks and snapshots cost one copy. One that cannot is
reset and played again up to the fork, and must then say what it said before; strategies that need snapshots are
refused (`Foreign.lacks`). Every call runs beside the event loop, so the hand's time limits hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from os.path import commonprefix
from threading import Lock
from typing import Any, Literal

from rolltree.task.foreign.threads import beside
from rolltree.task.items import TaskError, digest
from rolltree.task.protocol import Item, Reply, Said, Verdict

# Where a foreign environment stands after a turn, for whoever goes on from there.
#
# A task is functional and a foreign environment is not. Where it can be copied, a seat keeps it and gives copies away.
# Where it cannot, the seat hands the environment itself to the first who asks; everyone else plays the episode again.

Snapshots = Literal["copy", "replay"]
SPARE = 64
"""Environments that wait to be reset; more are closed."""


class Stable:
    """Environments of one kind, built when needed and reset often."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        """One that nobody uses; it stands anywhere, so reset it."""
        with suppress(IndexError):
            return self._free.pop()
        return self.make()

    def back(self, env: Any) -> None:
        """Nobody uses this one any more."""
        if len(self._free) < SPARE:
            self._free.append(env)
        elif callable(close := getattr(env, "close", None)):
            # Spelled out: at the program's end, when seats go too, imported names are gone already.
            try:  # noqa: SIM105
                close()
            except Exception:  # it is thrown away either way
                pass


class Seat:
    """One environment at one place. It goes back to its stable when the last state that names it is gone."""

    __slots__ = ("_env", "_lock", "_snapshots", "_stable")

    def __init__(self, env: Any, stable: Stable, snapshots: Snapshots) -> None:
        self._env: Any = env
        self._stable = stable
        self._snapshots = snapshots
        self._lock = Lock()

    def take(self) -> Any:
        """An environment that stands here and is now the caller's; None where it was handed on already."""
        with self._lock:
            if self._snapshots == "copy":
                return deepcopy(self._env)
            env, self._env = self._env, None
            return env

    def __deepcopy__(self, memo: dict[int, Any]) -> Seat:
        # A state is a value; this is how it is reached, not what it is.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # An environment stays in its process: elsewhere the state is reached by playing the episode again.
        return _empty, ()

    def __del__(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            self._stable.back(env)


def _empty() -> None:
    return None


def can_copy(env: Any) -> bool:
    """Whether an environment can be copied: one that holds a socket, a process or a lock cannot."""
    try:
        deepcopy(env)
    except Exception:  # whatever its parts raise
        return False
    return True


class EpisodeError(TaskError):
    """An environment that does not do the same again, so that what it says belongs to no episode."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What an environment says to one turn."""

    text: str
    reward: float = 0.0
    done: bool = False
    failed: bool = False
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    state: str = ""
    """The environment's own name of the state it is in now; without one, all that was said is the name."""
    aside: tuple[str | Said, ...] | None = None
    """A context of its own that must be answered first (see `Reply`); `text` is then all of it as text."""
    how: str = ""
    """How that context came about, in a word."""
    record: tuple[Any, ...] = ()
    """What it read from outside since the episode began, for `recall`."""


@dataclass(frozen=True, slots=True)
class Episode:
    """What was said and heard so far; two episodes with the same turns are the same state."""

    turns: tuple[str, ...] = ()
    heard: tuple[str, ...] = ()
    total: float = 0.0
    """Sum of the step rewards."""
    failures: int = 0
    done: bool = False
    seat: Seat | None = field(default=None, compare=False, repr=False)
    record: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    """What the environment read from outside on the way."""


class Foreign(ABC):
    """What tasks on foreign environments share. The three methods below may block; each call has an environment to
    itself."""

    level = 0

    def __init__(
        self, name: str, make: Callable[[], Any], *, stop: tuple[str, ...], max_tokens: int, max_turns: int,
        snapshots: Literal["auto", "copy", "replay"],
    ) -> None:  # fmt: skip
        if snapshots not in ("auto", "copy", "replay"):
            raise TaskError(f"{name}: snapshots={snapshots!r} must be 'auto', 'copy' or 'replay'")
        if max_turns < 1:
            raise TaskError(f"{name}: max_turns is {max_turns}, but an environment answers at least once")
        self.name, self.stop, self.max_tokens, self.max_turns = name, stop, max_tokens, max_turns
        self.stable = Stable(make)
        self._wanted = snapshots
        self.snapshots: Snapshots = "replay"
        """How a fork gets its environment: by a copy, or by playing the episode again."""

    @property
    def lacks(self) -> frozenset[str]:
        """Needs of strategies that these environments cannot meet."""
        return frozenset({"snapshot"} if self.snapshots == "replay" else ())

    @abstractmethod
    def open(self, env: Any, item: Item) -> str:
        """Reset an environment for an item; returns what it shows."""

    def recall(self, env: Any, item: Item, state: Episode) -> None:
        """Before an environment is opened to play an episode again: give it what it then read from outside."""
        return

    @abstractmethod
    def turn(self, env: Any, text: str) -> Heard:
        """The environment's answer to a turn. What the policy did wrong is an answer; what is raised is a crash."""

    @abstractmethod
    def judge(self, env: Any, item: Item, episode: Episode, text: str) -> Verdict:
        """The outcome of a rollout that ended here."""

    def probe(self, item: Item) -> str:
        """Reset one environment for an item and settle how environments are forked; returns what it shows."""
        env = self.stable.take()
        shown = self.open(env, item)
        copies = self._wanted != "replay" and can_copy(env)
        if self._wanted == "copy" and not copies:
            raise TaskError(
                f"{self.name}: snapshots='copy', but {type(env).__name__} cannot be copied; give it a __deepcopy__, or "
                "choose snapshots='replay'"
            )
        self.snapshots = "copy" if copies else "replay"
        self.stable.back(env)
        return shown

    def shown(self, item: Item) -> str:
        """What an environment shows at the start of an item."""
        env = self.stable.take()
        text = self.open(env, item)
        self.stable.back(env)
        return text

    def start(self, item: Item) -> tuple[Episode, str | None]:
        """Nothing was said."""
        return Episode(), _key(item, (), str(item.meta.get("state", "")))

    async def step(self, item: Item, state: Episode, text: str) -> Reply:
        """The environment's answer; it is reset and led there first where no environment stands there."""
        return await beside(lambda: self._step(item, state, text))

    async def verify(self, item: Item, state: Episode, text: str) -> Verdict:
        """The environment's own outcome."""
        return await beside(lambda: self._verify(item, state, text))

    def _step(self, item: Item, state: Episode, text: str) -> Reply:
        env = self._stand(item, state)
        heard = self.turn(env, text)
        after = Episode(
            (*state.turns, text), (*state.heard, heard.text), state.total + heard.reward,
            state.failures + heard.failed, heard.done, Seat(env, self.stable, self.snapshots),
            heard.record,
        )  # fmt: skip
        return Reply(
            heard.text, after, done=heard.done, reward=heard.reward, state_key=_key(item, after.turns, heard.state),
            failed=heard.failed, parts=heard.parts, aside=heard.aside, how=heard.how,
        )  # fmt: skip

    def _verify(self, item: Item, state: Episode, text: str) -> Verdict:
        env = self._stand(item, state)
        verdict = self.judge(env, item, state, text)
        self.stable.back(env)
        return verdict

    def _stand(self, item: Item, state: Episode) -> Any:
        """An environment of our own at this state."""
        env = None if state.seat is None else state.seat.take()
        if env is not None:
            return env
        env = self.stable.take()
        self.recall(env, item, state)
        shown = self.open(env, item)
        if shown != item.meta["shown"]:
            raise EpisodeError(
                f"{self.name} began item {item.id!r} with {difference(shown, item.meta['shown'])}; "
                "reset must depend on what it is given alone (take chance from a seed)"
            )
        for number, (turn, before) in enumerate(zip(state.turns, state.heard, strict=True), 1):
            now = self.turn(env, turn).text
            if now != before:
                raise EpisodeError(
                    f"{self.name} answered turn {number} of item {item.id!r} with {difference(now, before)}; an "
                    "environment that cannot be copied must answer the same again"
                )
        return env


def difference(now: str, before: str) -> str:
    """Two texts from where they first differ."""
    at = len(commonprefix((now, before)))  # noqa: RUF071 - texts, not paths
    place = f", from character {at} on" if at else ""
    return f"{now[at : at + 80]!r} and before with {before[at : at + 80]!r}{place}"


def _key(item: Item, turns: tuple[str, ...], state: str) -> str:
    """The name of a state: its own, or of a deterministic environment all that was said to it."""
    if state:
        return f"{item.id}/{digest(state)}"
    return f"{item.id}/{len(turns)}" + (f":{digest(repr(turns))}" if turns else "")


def unsaid(episode: Episode, text: str) -> str:
    """The policy's words since the environment last spoke."""
    told = "".join(turn + heard for turn, heard in zip(episode.turns, episode.heard, strict=True))
    if text.startswith(told):
        return text[len(told) :]
    return text.rpartition(episode.heard[-1])[2] if episode.heard else text
