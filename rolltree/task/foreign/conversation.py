"""Environments of verifiers (API v1) as tasks of many turns: their own `run` plays, and waits for our policy.

There an environment is a coroutine: it opens an interaction with an agent and awaits the agent's answer to each of its
messages. Here the agent is a seat whose answers come from the rollout, so the environment's code, limits, stop
conditions and rewards stay its own. Such a coroutine cannot be copied; forks play it again (see `episode`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from rolltree.task.foreign.episode import Episode, Foreign, Heard, unsaid
from rolltree.task.foreign.parts import Render
from rolltree.task.foreign.play import Play, content_of
from rolltree.task.foreign.starts import StartRows
from rolltree.task.foreign.threads import awaited
from rolltree.task.foreign.verifiers_parts import (
    LIMIT,
    configured,
    library,
    messages_of,
    played_by,
    prompt_of,
    refuse_demands,
    verdict_of,
)  # fmt: skip
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Split, Verdict


class Conversation(Foreign):
    """A task set with an environment of its own, by the name verifiers finds it under. Knobs go to its configuration.

    The policy's turn ends at `closes`; the environment's message is written between `before` and `after`, the prompt
    before `after`. For a chat model `render` is its chat template, which writes the prompt, and those two are what the
    template puts around a message of the user. A rollout that ends otherwise (eos, a limit) still has its last words
    delivered before it is judged.
    """

    def __init__(
        self, name: str, *, render: Render | None = None, closes: str = "\n", before: str = "", after: str = "\n",
        max_tokens: int = 1024, max_turns: int = 32, limit: int = LIMIT, **config: Any,
    ) -> None:  # fmt: skip
        self._render, self._before, self._after = render, before, after
        self.exact_text = render is not None
        env, role = self._load(name, config)
        super().__init__(
            f"verifiers:{name}", lambda: Play(env, role), stop=(closes,), max_tokens=max_tokens, max_turns=max_turns,
            snapshots="replay",
        )  # fmt: skip
        self._tasks = {str(task.key): task for task in islice(env.taskset, limit)}
        if not self._tasks:
            raise TaskError(f"{self.name} has no tasks")
        refuse_demands(self.name, next(iter(self._tasks.values())))
        self._starts = StartRows(self.name, [{"key": key} for key in self._tasks], self._begin)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The tasks of a split in a random order, again and again; the task's content decides the split."""
        return self._starts.items(split, seed)

    def count(self, split: Split) -> int | None:
        """How many items a split has, where they are rows."""
        return self._starts.count(split)

    def open(self, env: Play, item: Item) -> str:
        """Begin an episode; what the policy sees at first."""
        return self._opening(env, item.answer)

    def turn(self, env: Play, text: str) -> Heard:
        """Hand the policy's words to the environment, which says something or ends."""
        heard = awaited(env.answer(text))
        if heard is None:
            return Heard("", done=True)
        said = "\n\n".join(content_of(message) for message in heard)
        return Heard(f"{self._before}{said}{self._after}")

    def judge(self, env: Play, item: Item, episode: Episode, text: str) -> Verdict:
        """The environment's own rewards, once it has heard the last words and has ended."""
        last = "" if episode.done else unsaid(episode, text)
        trace = awaited(env.finish(last))
        return verdict_of(trace, self.name, item.id, trace.last_reply)

    def _load(self, name: str, config: Mapping[str, Any]) -> tuple[Any, str]:
        """The environment and the name of its one agent."""
        vf, kind, who = library(), played_by(name), f"verifiers:{name}"
        loaders: Any = vf.utils.loaders
        env = kind(loaders.env_config_type(name)(taskset=configured(name, config)))
        roles = list(vf.configs.agent.agent_config_fields(env.config))
        if len(roles) > 1:
            raise TaskError(
                f"{who} is played by {len(roles)} agents ({', '.join(roles)}), and a rollout here has one; run it with "
                "verifiers"
            )
        if type(env.taskset).toolsets(env.taskset.config):
            raise TaskError(f"{who} has tools, and only replies are taken over; run it with verifiers")
        if kind.start is not vf.Env.start:
            raise TaskError(f"{who} starts services of its own; run it with verifiers")
        return env, roles[0]

    def _begin(self, row: Mapping[str, Any]) -> Item:
        env, key = self.stable.take(), row["key"]
        shown = self._opening(env, key)
        self.stable.back(env)
        data = self._tasks[key].data
        about = data.model_dump(mode="json", exclude_none=True)
        return Item(str(data.id or data.name or key[:12]), shown, key, 0, about | {"shown": shown})

    def _opening(self, env: Play, key: str) -> str:
        task = self._tasks[key]
        seen, said = awaited(env.begin(task))
        spoken = [{"role": message.role, "content": content_of(message)} for message in said]
        prompt = prompt_of(messages_of(seen.data) + spoken, self._render, self.name)
        return prompt if self._render is not None else prompt + self._after
