"""Gymnasium environments as tasks, where observations and actions are text or have names (Gymnasium, arXiv 2407.17032).

Observations: those of a `Text` space are themselves; else the environment's "ansi" rendering is shown; else `shows`
makes a text of them. Actions: those of a `Text` space are what the policy wrote; those of a `Discrete` space are
written by name (`actions`, or the environment's `action_names` or `get_action_meanings()`) or as their number. An item
is a seed. A turn that is no action is answered, marked as failed, and the environment is not stepped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from rolltree.errors import RolltreeError
from rolltree.task.foreign.episode import Episode, Foreign, Heard
from rolltree.task.foreign.rewards import number
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
    """One environment by its id; `package.module:Name-v0` imports the module that registers it.

    What stands between the last `opens` and `closes` of a turn is the action. `instructions` stand between the first
    observation and the first turn; by default the names of the actions. The score is the sum of rewards, and every
    reward is recorded at its step. Other knobs go to `gymnasium.make`.
    """

    def __init__(
        self, env_id: str, *, actions: Sequence[str] | None = None, shows: Callable[[Any], str] | None = None,
        instructions: str | None = None, opens: str = "", closes: str = "\n", max_tokens: int = 512,
        max_turns: int | None = None, snapshots: Literal["auto", "copy", "replay"] = "auto", **knobs: Any,
    ) -> None:  # fmt: skip
        library = _library()
        try:
            self._spec = library.spec(env_id)
            probe = library.make(env_id, **knobs)
        except (library.error.Error, TypeError, ModuleNotFoundError, ValueError) as error:
            raise TaskError(f"gymnasium cannot make {env_id!r}: {error}") from None
        name = f"gym:{env_id}"
        self._opens, self._closes = opens, closes
        self._observe, more = _observer(name, probe, shows, library)
        self._actions = _actions(name, probe, actions, library)
        probe.close()
        limit = max_turns or self._spec.max_episode_steps or TURNS
        super().__init__(
            name, lambda: library.make(env_id, **more, **knobs), stop=(closes,), max_tokens=max_tokens,
            max_turns=limit, snapshots=snapshots,
        )  # fmt: skip
        named = f"Actions: {', '.join(self._actions)}\n" if self._actions else ""
        self._instructions = named if instructions is None else instructions
        self._starts = Seeds(name, self._begin)
        self.probe(self._starts.first[0])

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """A seed of the environment per item, without end."""
        return self._starts.items(split, seed)

    def open(self, env: Any, item: Item) -> str:
        """Reset with the item's seed."""
        observation, _ = env.reset(seed=item.answer)
        return self._observe(env, observation)

    def turn(self, env: Any, text: str) -> Heard:
        """One step."""
        said = text.partition(self._closes)[0]
        said = said.rpartition(self._opens)[2] if self._opens else said
        if self._actions:
            action = self._actions.get(said.strip())
            if action is None:
                return Heard(f"no action {said.strip()[:40]!r}; there are {', '.join(self._actions)}\n", failed=True)
        elif not env.action_space.contains(said):
            return Heard(f"{said[:40]!r} is not in {env.action_space}\n", failed=True)
        else:
            action = said
        observation, reward, terminated, truncated, _ = env.step(action)
        return Heard(
            self._line(self._observe(env, observation)), number(reward, self.name, said), bool(terminated or truncated),
            parts={"terminated": float(terminated)},
        )  # fmt: skip

    def judge(self, env: Any, item: Item, episode: Episode, text: str) -> Verdict:
        """The return; a rollout that was cut short keeps what it earned."""
        parts = {"steps": float(len(episode.turns) - episode.failures), "invalid": float(episode.failures)}
        why = "" if episode.done else "the episode was not over"
        return Verdict(episode.total, parts, episode.heard[-1].strip() if episode.heard else None, why)

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
