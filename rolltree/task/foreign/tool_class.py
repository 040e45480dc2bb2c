"""TRL-style environment classes as tasks: public methods are tools, `reset(**row)` begins, `get_reward()` judges.

This is the contract of TRL's `environment_factory`, which OpenEnv, OpenReward and Harbor environments are written to.
As in TRL, what `reset` returns is appended to the prompt and an exception of a tool is an answer to the policy; unlike
TRL, exceptions that cannot be the policy's fault (`answers` lists those that can) are crashes, and a class that sets
`self.done` ends the episode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from rolltree.task.foreign.calls import CallError, Calls, Lines, Tagged, Tools
from rolltree.task.foreign.episode import Episode, Foreign, Heard
from rolltree.task.foreign.parts import UnscorableError, locate, number, text_of
from rolltree.task.foreign.starts import Seeds, StartRows, read_rows, row_id
from rolltree.task.foreign.threads import awaited
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Split, Verdict

ANSWERS: tuple[type[Exception], ...] = (
    ValueError, TypeError, LookupError, ArithmeticError, AssertionError, NotImplementedError,
)  # fmt: skip
"""Exceptions of a tool that the policy gets to read; every other is a crash and fails the node."""
FORMATS: Mapping[str, Callable[[], Calls]] = {"tagged": Tagged, "lines": Lines}
Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Callable[..., Any]]], str]
"""Messages and tools as the text the policy continues, for instance a tokenizer's chat template."""
Reward = Callable[..., Any]


class ToolClass(Foreign):
    """One environment class. Each rollout has an instance to itself.

    `factory` is the class, any callable that gives an instance, or the address of one. `rows` is TRL's data set: every
    row is given to `reset`, a column `prompt` opens the prompt. Without rows the environment owns its data and gets a
    `seed`. `reward` is one or several TRL reward functions, called with `environments`; they add to `get_reward`.
    `render` writes messages and tools as a prompt; without it the tools are listed in plain words.
    """

    def __init__(
        self, factory: str | Callable[[], Any], rows: str | Path | Iterable[Mapping[str, Any]] | None = None, *,
        reward: Reward | Sequence[Reward] = (), calls: str | Calls = "tagged", render: Render | None = None,
        max_tokens: int = 1024, max_turns: int = 8, snapshots: Literal["auto", "copy", "replay"] = "auto",
        answers: tuple[type[Exception], ...] = ANSWERS,
    ) -> None:  # fmt: skip
        make = locate(factory, "the environment class") if isinstance(factory, str) else factory
        name = f"trl:{factory if isinstance(factory, str) else getattr(factory, '__qualname__', repr(factory))}"
        self.calls = _calls(calls)
        super().__init__(
            name, make, stop=self.calls.stop, max_tokens=max_tokens, max_turns=max_turns, snapshots=snapshots
        )
        self._rewards = (reward,) if callable(reward) else tuple(reward)
        self._render, self._answers = render, answers
        # A chat template's tags are special tokens, and part of what is heard.
        self.exact_text = render is not None or (isinstance(self.calls, Tagged) and self.calls != Tagged())
        try:
            env = self.stable.take()
        except SystemExit as error:
            raise TaskError(f"{name} leaves the program when one is made (sys.exit); let it raise an error") from error
        if not callable(getattr(env, "reset", None)):
            raise TaskError(f"{name}: {type(env).__name__} has no method reset, which begins an episode")
        if not self._rewards and not callable(getattr(env, "get_reward", None)):
            raise TaskError(f"{name}: {type(env).__name__} has no get_reward; give it one, or pass reward=")
        self.stable.back(env)
        self._starts = self._begin_all(rows, env)
        first = self._starts.first
        self.probe(first[0] if isinstance(first, list) else first)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The rows in a random order again and again, or seeds without end."""
        return self._starts.items(split, seed)

    def count(self, split: Split) -> int | None:
        """How many items a split has, where they are rows."""
        return self._starts.count(split)

    def open(self, env: Any, item: Item) -> str:
        """`reset` with the row."""
        return self._reset(env, item.answer)

    def turn(self, env: Any, text: str) -> Heard:
        """Call the tool that the turn names."""
        tools = tools_of(env)
        try:
            call = self.calls.read(text, tools)
        except CallError as error:
            return Heard(self.calls.say(f"error: {error}"), failed=True, done=_done(env))
        try:
            said = tools[call.name](**call.arguments)
            if inspect.isawaitable(said):
                said = awaited(cast(Any, said))
        except self._answers as error:
            return Heard(self.calls.say(f"error: {error}"), failed=True, done=_done(env))
        return Heard(self.calls.say("" if said is None else _text(said, call.name)), done=_done(env))

    def judge(self, env: Any, item: Item, episode: Episode, text: str) -> Verdict:
        """`get_reward` and the reward functions, added as TRL adds them; None is left out of the sum."""
        parts: dict[str, float] = {}
        for name, told in self._told(env, item, text):
            if told is not None:
                parts[name] = number(told, name, item.id)
        if not parts:
            raise UnscorableError(f"no reward of {self.name} applies to item {item.id!r}: all of them answered None")
        more = {"calls": float(len(episode.turns)), "failed_calls": float(episode.failures)}
        last = text.rpartition(episode.heard[-1])[2] if episode.heard and episode.heard[-1] else text
        answer = last.strip() or (episode.turns[-1].strip() if episode.turns else None)
        return Verdict(sum(parts.values()), parts | more, answer)

    def _told(self, env: Any, item: Item, text: str) -> Iterable[tuple[str, Any]]:
        if callable(own := getattr(env, "get_reward", None)):
            yield type(env).__name__, _now(own())
        columns = {key: [value] for key, value in item.answer.items() if key != "prompt"}
        for function in self._rewards:
            told = _now(function(
                prompts=[item.prompt], completions=[text], completion_ids=[None], environments=[env], **columns
            ))  # fmt: skip
            yield getattr(function, "__name__", type(function).__name__), told[0]

    def _begin_all(self, rows: str | Path | Iterable[Mapping[str, Any]] | None, env: Any) -> StartRows | Seeds:
        if rows is not None:
            return StartRows(self.name, read_rows(rows), self._begin)
        takes = inspect.signature(env.reset).parameters.values()
        if not any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in takes):
            raise TaskError(
                f"{self.name}: reset takes no seed, so every episode would be the same; give rows=, or let it take one"
            )
        return Seeds(self.name, lambda seed: self._begin({"seed": seed}))

    def _begin(self, row: Mapping[str, Any]) -> Item:
        env = self.stable.take()
        shown = self._reset(env, row)
        tools = tools_of(env)
        given = row.get("prompt") or ""
        if self._render is not None:
            messages = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
            last = {**messages[-1], "content": messages[-1]["content"] + shown}
            prompt = self._render([*messages[:-1], last], list(tools.values()))
        else:
            prompt = text_of(given, f"a row of {self.name}") + shown + self.calls.explain(tools)
        self.stable.back(env)
        if not prompt:
            raise TaskError(f"{self.name}: neither the row nor reset gave a prompt for {row_id(row)!r}")
        level = row.get("level", 0)
        return Item(row_id(row), prompt, row, level if isinstance(level, int) else 0, {"shown": shown})

    def _reset(self, env: Any, row: Mapping[str, Any]) -> str:
        shown: Any = env.reset(**row)
        if shown is not None and not isinstance(shown, str):
            raise TaskError(f"{self.name}: reset gave {type(shown).__name__}; it must give a text or None")
        return shown or ""


def tools_of(env: Any) -> Tools:
    """The tools of an environment: public methods of its class but `reset` and `get_reward`."""
    return {
        name: getattr(env, name) for name, _ in inspect.getmembers(type(env), inspect.isfunction)
        if not name.startswith("_") and name not in ("reset", "get_reward", "close")
    }  # fmt: skip


def _calls(calls: str | Calls) -> Calls:
    if not isinstance(calls, str):
        return calls
    if calls not in FORMATS:
        raise TaskError(f"no format of calls {calls!r}: choose {' or '.join(FORMATS)}, or give an object")
    return FORMATS[calls]()


def _text(said: Any, tool: str) -> str:
    if isinstance(said, list) and any(isinstance(part, Mapping) for part in cast(list[Any], said)):
        parts = cast(list[Mapping[str, Any]], said)
        if any(part.get("type") != "text" for part in parts):
            raise RuntimeError(f"the tool {tool} answered with something else than text, which no policy here reads")
        return "".join(str(part["text"]) for part in parts)
    return str(said)


def _done(env: Any) -> bool:
    return getattr(env, "done", False) is True


def _now(told: Any) -> Any:
    return awaited(cast(Any, told)) if inspect.isawaitable(told) else told
