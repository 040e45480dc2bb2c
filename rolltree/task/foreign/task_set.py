"""Task sets of verifiers (Prime Intellect; API v1) as tasks: their data, and their rewards as the verifier.

A task set is data with scoring; what plays it there is a harness that talks to a model server. Here the policy is asked
once and its text is scored as the trace of one reply. A task set that brings an environment of its own is a
`Conversation`. Those that need more than replies (tools, a container, set-up in a runtime) are refused by what they
need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from rolltree.task.foreign.conversation import Conversation
from rolltree.task.foreign.parts import Render
from rolltree.task.foreign.starts import StartRows
from rolltree.task.foreign.threads import awaited, beside
from rolltree.task.foreign.verifiers_parts import (
    LIMIT,
    commit_reply,
    configured,
    library,
    messages_of,
    new_trace,
    played_by,
    prompt_of,
    refuse_demands,
    typed,
    verdict_of,
)  # fmt: skip
from rolltree.task.items import SingleTurn, TaskError
from rolltree.task.protocol import Item, Split, Task, Verdict


def from_verifiers(name: str, **knobs: Any) -> Task:
    """A task set by the name verifiers finds it under: a `TaskSet`, or a `Conversation` where it has an environment."""
    single = played_by(name) is library().SingleAgentEnv
    return TaskSet(name, **knobs) if single else Conversation(name, **knobs)


class TaskSet(SingleTurn):
    """One task set by the name verifiers finds it under. Knobs go to its configuration.

    `render` writes the messages as a prompt (a chat template); without it the system prompt stands before the question.
    """

    def __init__(
        self, name: str, *, render: Render | None = None, max_tokens: int = 1024, stop: tuple[str, ...] = (),
        limit: int = LIMIT, **config: Any,
    ) -> None:  # fmt: skip
        self.name, self.level, self.max_turns = f"verifiers:{name}", 0, 0
        self.max_tokens, self.stop = max_tokens, stop
        self._render = render
        source = self._load(name, config)
        self._tasks = {str(task.key): task for task in islice(source, limit)}
        if not self._tasks:
            raise TaskError(f"{self.name} has no tasks")
        first = next(iter(self._tasks.values()))
        refuse_demands(self.name, first)
        for lack, told in {
            "lets the user speak first": first.data.prompt is None,
            "has no reward": not first.hooks("reward") and not first.plugged_judges(),
        }.items():
            if told:
                raise TaskError(f"{self.name} {lack}, which a rollout here cannot give it; run it with verifiers")
        self._starts = StartRows(self.name, [{"key": key} for key in self._tasks], self._begin)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The tasks of a split in a random order, again and again; the task's content decides the split."""
        return self._starts.items(split, seed)

    def count(self, split: Split) -> int | None:
        """How many items a split has, where they are rows."""
        return self._starts.count(split)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """The task's rewards, weighted and added as verifiers does; rewards and metrics are parts."""
        task = self._tasks[item.answer]
        trace = new_trace(task, "agent")
        commit_reply(trace, typed(messages_of(task.data)), text)
        trace.is_completed = trace.ok = True
        await beside(lambda: awaited(task.score(trace)))
        return verdict_of(trace, self.name, item.id, text)

    def _load(self, name: str, config: Mapping[str, Any]) -> Any:
        settings = configured(name, config)
        kind: Any = library().utils.loaders.taskset_class(name)
        source = kind(settings)
        if kind.toolsets(settings):
            raise TaskError(f"{self.name} has tools, and only replies are taken over; run it with verifiers")
        return source

    def _begin(self, row: Mapping[str, Any]) -> Item:
        data = self._tasks[row["key"]].data
        prompt = prompt_of(messages_of(data), self._render, self.name)
        name = data.id or data.name or row["key"][:12]
        return Item(str(name), prompt, row["key"], 0, data.model_dump(mode="json", exclude_none=True))
