"""Gymnasium environments as tasks, where observations and actions are text or have names (Gymnasium, arXiv 2407.17032).

Observations: those of a `Text` space are themselves; else the environment's "ansi" rendering is shown; else `shows`
makes a text of them. Actions: those of a `Text` space are what the policy wrote; those of a `Discrete` space are
written by name (`actions`, or the environment's `action_names` or `get_action_meanings()`) or as their number. An item
is a seed. A turn that is no action is answered, marked as failed, and the environment is not stepped.

A policy with a chat template plays in it: each observation is a user's message, each turn ends where the template ends
it, and what stands between think tags is no part of the action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from rolltree.errors import RolltreeError
from rolltree.policy.quoted import Quoted
from rolltree.task.data.chat import Chat, chat_of, think_tags
from rolltree.task.foreign.episode import Episode, Foreign, Heard
from rolltree.task.foreign.parts import imported, number
from rolltree.task.foreign.starts import Seeds
from rolltree.task.items import TaskError, check_item
from rolltree.task.protocol import Item, Split, Verdict

TURNS = 64
"""Most steps of an environment that sets no limit itself."""


class GymnasiumMissingError(RolltreeError, ImportError):
    """Gymnasium is not installed."""


def _library() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise GymnasiumMissingError(
            "gym:ENV_ID needs the library gymnasium: pip install 'rolltree[gymnasium]'"
        ) from None
    return gymnasium


class TextGym(Foreign):
    """One environment by its id; `package.module:Name-v0` or `file.py:Name-v0` imports what registers it.

    What stands between the last `opens` and `closes` of a turn is the action; when `closes` is left out, a turn ends
    with its line, or where the chat template ends it. `instructions` stand between the first observation and the first
    turn; by default the names of the actions. `chat="off"` plays without the policy's template. The score is the sum
    of rewards, and every reward is recorded at its step. Other knobs go to `gymnasium.make`.
    """

    def __init__(
        self, env_id: str, *, actions: Sequence[str] | None = None, shows: Callable[[Any], str] | None = None,
        instructions: str | None = None, opens: str = "", closes: str = "", max_tokens: int = 512,
        max_turns: int | None = None, snapshots: Literal["auto", "copy", "replay"] = "auto",
        chat: Literal["auto", "off"] = "auto", system: str = "", think: str = "auto", **knobs: Any,
    ) -> None:  # fmt: skip
        library = _library()
        name, (module, _, registered) = f"gym:{env_id}", env_id.rpartition(":")
        if module:
            imported(module, f"the environment {env_id!r}")
        try:
            probe = library.make(registered, **knobs)
        except (library.error.Error, TypeError, ModuleNotFoundError, ValueError) as error:
            raise TaskError(f"gymnasium cannot make {env_id!r}: {error}") from None
        self._opens, self._closes = opens, closes
        self._wants_chat, self._system, self._think = chat == "auto", system, think_tags(think)
        self.chat: Chat | None = None
        self._around = ("", "")
        self._observe, more = _observer(name, probe, shows, library)
        self._actions = _actions(name, probe, actions, library)
        probe.close()
        limit = max_turns or library.spec(registered).max_episode_steps or TURNS
        super().__init__(
            name, lambda: library.make(registered, **more, **knobs), stop=(closes or "\n",), max_tokens=max_tokens,
            max_turns=limit, snapshots=snapshots,
        )  # fmt: skip
        named = f"Actions: {', '.join(self._actions)}\n" if self._actions else ""
        self._instructions = named if instructions is None else instructions
        self._starts = Seeds(name, self._begin)
        self.probe(self._starts.first[0])

    @property
    def exact_text(self) -> bool:
        """In a chat template special tokens mean something, so a turn is read with them."""
        return self.chat is not None

    def spoken_by(self, tokenizer: Any) -> TextGym:
        """This environment in the chat template of a policy, as far as it has one."""
        if not self._wants_chat:
            if self._system:
                raise TaskError("--system needs the chat template: leave out --chat off")
            return self
        chat = chat_of(tokenizer, self._system)
        if chat is None:
            return self
        if not chat.ends:
            raise TaskError(
                f"the chat template of {chat.name} ends a turn with no special token, so the environment would not "
                "know when it is its turn; use --chat off"
            )
        bound = object.__new__(TextGym)
        vars(bound).update(vars(self))
        bound.chat, bound._around, bound.stop = chat, chat.around_user(), (chat.ends,)
        return bound

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """A seed of the environment per item, without end."""
        items = self._starts.items(split, seed)
        chat = self.chat
        return items if chat is None else (replace(i, prompt=chat.prompt(i.prompt.strip())) for i in items)

    def open(self, env: Any, item: Item) -> str:
        """Reset with the item's seed."""
        observation, _ = env.reset(seed=item.answer)
        return self._observe(env, observation)

    def turn(self, env: Any, text: str) -> Heard:
        """One step."""
        said = self._said(text)
        if self._actions:
            action = self._actions.get(said.strip())
            if action is None:
                return self._refused(f"no action {said.strip()[:40]!r}; there are {', '.join(self._actions)}")
        elif not env.action_space.contains(said):
            return self._refused(f"{said[:40]!r} is not in {env.action_space}")
        else:
            action = said
        observation, reward, terminated, truncated, _ = env.step(action)
        return Heard(
            self._told(self._observe(env, observation)), number(reward, self.name, said), bool(terminated or truncated),
            parts={"terminated": float(terminated)},
        )  # fmt: skip

    def _said(self, text: str) -> str:
        """The action in a turn."""
        if self.chat is None:
            said = text.partition(self._closes or "\n")[0]
            return said.rpartition(self._opens)[2] if self._opens else said
        said = self._think.answer(text.removesuffix(self.chat.ends), self.chat.begins)
        if self._opens:
            said = said.rpartition(self._opens)[2]
        return (said.partition(self._closes)[0] if self._closes else said).strip()

    def _told(self, shown: str) -> str:
        """An observation as the policy hears it."""
        if self.chat is None:
            return self._line(shown)
        (before, after), said = self._around, shown.strip()
        return Quoted(f"{before}{said}{after}", ((len(before), len(before) + len(said)),))

    def _refused(self, why: str) -> Heard:
        return Heard(self._told(why), failed=True)

    def judge(self, env: Any, item: Item, episode: Episode, text: str) -> Verdict:
        """The return; a rollout that was cut short keeps what it earned."""
        parts = {"steps": float(len(episode.turns) - episode.failures), "invalid": float(episode.failures)}
        why = "" if episode.done else "the episode was not over"
        before, after = self._around
        last = episode.heard[-1].removeprefix(before).removesuffix(after).strip() if episode.heard else None
        return Verdict(episode.total, parts, last, why)

    def _begin(self, seed: int) -> Item:
        env = self.stable.take()
        observation, _ = env.reset(seed=seed)
        shown = self._observe(env, observation)
        self.stable.back(env)
        prompt = self._line(shown) + self._instructions
        return check_item(Item(f"{self.name.removeprefix('gym:')}-{seed}", prompt, seed, 0, {"shown": shown}))

    def _line(self, text: str) -> str:
        return text if text.endswith("\n") else f"{text}\n"


def _observer(
    name: str, env: Any, shows: Callable[[Any], str] | None, library: Any
) -> tuple[Callable[[Any, Any], str], dict[str, Any]]:
    """How an observation becomes text, and what `make` must be told for it."""
    if shows is not None:
        return (lambda _, seen: shows(seen)), {}
    if isinstance(env.observation_space, library.spaces.Text):
        return (lambda _, seen: str(seen)), {}
    if "ansi" in (env.metadata.get("render_modes") or ()):
        return (lambda asked, _: str(asked.render())), {"render_mode": "ansi"}
    raise TaskError(
        f"{name} shows {env.observation_space} and has no 'ansi' rendering, so a policy cannot read it; pass shows=, a "
        "function from an observation to a text"
    )


def _actions(name: str, env: Any, given: Sequence[str] | None, library: Any) -> dict[str, int]:
    """The names of a Discrete space's actions; empty for a Text space."""
    space, inner = env.action_space, env.unwrapped
    if isinstance(space, library.spaces.Text):
        return {}
    if not isinstance(space, library.spaces.Discrete):
        raise TaskError(
            f"{name} acts in {space}, which has no names; wrap it in an environment with a Text or a Discrete space"
        )
    first, count = int(space.start), int(space.n)
    meanings = getattr(inner, "get_action_meanings", None)
    names: Any = given or getattr(inner, "action_names", None) or (meanings() if callable(meanings) else None)
    names = [str(n) for n in (range(first, first + count) if names is None else names)]
    if len(names) != count or len(set(names)) != count:
        raise TaskError(f"{name} has {count} actions, but {len(set(names))} names for them: {', '.join(names)}")
    return {n: first + i for i, n in enumerate(names)}
