"""Task sets of verifiers (Prime Intellect; API v1) as tasks: their data, and their rewards as the verifier.

A task set is data with scoring; what plays it there is a harness that talks to a model server. Here the policy is asked
once and its text is scored as the trace of one reply. Task sets that need more than that (an environment of their own,
tools, a container, set-up in a runtime) are refused by what they need.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, cast

from rolltree.task.foreign.messages import Render, text_of
from rolltree.task.foreign.rewards import UnscorableError, number
from rolltree.task.foreign.starts import Rows
from rolltree.task.foreign.threads import awaited, beside
from rolltree.task.items import TaskError
from rolltree.task.nano.single import SingleTurn
from rolltree.task.protocol import Item, Split, Verdict

LIMIT = 4096
"""Tasks read of a task set; those without end are cut here."""


class VerifiersMissingError(ImportError):
    """verifiers is not installed."""


def _library() -> Any:
    try:
        import verifiers.v1
        import verifiers.v1.utils.loaders
    except ImportError as error:
        raise VerifiersMissingError(
            f"verifiers:NAME needs the library verifiers, version 0.4 or later ({error}): "
            "pip install 'rolltree[verifiers]'"
        ) from None
    return verifiers.v1


class TaskSet(SingleTurn):
    """One task set by the name verifiers finds it under. Knobs go to its configuration.

    `render` writes the messages as a prompt (a chat template); without it the system prompt stands before the question.
    """

    def __init__(
        self, name: str, *, render: Render | None = None, max_tokens: int = 1024, stop: tuple[str, ...] = (),
        limit: int = LIMIT, **config: Any,
    ) -> None:  # fmt: skip
        self._vf = _library()
        self.name, self.level, self.max_turns = f"verifiers:{name}", 0, 0
        self.max_tokens, self.stop = max_tokens, stop
        self._render = render
        source = self._load(name, config)
        self._tasks = {str(task.key): task for task in islice(source, limit)}
        if not self._tasks:
            raise TaskError(f"{self.name} has no tasks")
        for lack, told in _demands(next(iter(self._tasks.values()))).items():
            if told:
                raise TaskError(f"{self.name} {lack}, which a rollout here cannot give it; run it with verifiers")
        self._starts = Rows(self.name, [{"key": key} for key in self._tasks], self._begin)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The tasks of a split in a random order, again and again; the task's content decides the split."""
        return self._starts.items(split, seed)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """The task's rewards, weighted and added as verifiers does; rewards and metrics are parts."""
        task = self._tasks[item.answer]
        trace = self._trace(task, text)
        await beside(lambda: awaited(task.score(trace)))
        silent = [name for name, reward in trace.rewards.items() if reward is None]
        if silent or not trace.rewards:
            raise UnscorableError(f"{self.name} gave item {item.id!r} no {', '.join(silent) or 'reward'}")
        parts = {name: float(value) for name, value in trace.metrics.items() if value is not None}
        parts |= {name: float(reward.value) for name, reward in trace.rewards.items()}
        return Verdict(number(trace.reward, self.name, item.id), parts, text.strip() or None)

    def _load(self, name: str, config: Mapping[str, Any]) -> Any:
        """The task set; an environment of its own is refused."""
        loaders: Any = self._vf.utils.loaders
        try:
            kind = loaders.taskset_class(name)
            playing = loaders.environment_class(name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise TaskError(f"verifiers finds no task set {name!r}: {error}") from None
        if playing is not self._vf.SingleAgentEnv:
            raise TaskError(
                f"{self.name} is played by its own environment {playing.__name__}, and only single turns are taken "
                "over; run it with verifiers"
            )
        wanted = loaders.concrete_type(kind, self._vf.TasksetConfig) or self._vf.TasksetConfig
        try:
            settings = wanted(id=name, **config)
        except ValueError as error:
            raise TaskError(f"{self.name} refuses its configuration: {' '.join(str(error).split())}") from None
        source = kind(settings)
        if kind.toolsets(settings):
            raise TaskError(f"{self.name} has tools, and only single turns are taken over; run it with verifiers")
        return source

    def _begin(self, row: Mapping[str, Any]) -> Item:
        data = self._tasks[row["key"]].data
        messages = self._messages(data)
        if self._render is not None:
            prompt = self._render(messages)
        else:
            prompt = "\n\n".join(text_of([message], f"a task of {self.name}") for message in messages)
        name = data.id or data.name or row["key"][:12]
        return Item(str(name), prompt, row["key"], 0, data.model_dump(mode="json", exclude_none=True))

    def _messages(self, data: Any) -> list[dict[str, Any]]:
        asked = [{"role": "user", "content": data.prompt}] if isinstance(data.prompt, str) else [
            cast(dict[str, Any], message.model_dump(exclude_none=True)) for message in data.prompt or ()
        ]  # fmt: skip
        return ([{"role": "system", "content": data.system_prompt}] if data.system_prompt else []) + asked

    def _trace(self, task: Any, text: str) -> Any:
        """The trace verifiers would have of a model that was asked once and said this."""
        from verifiers.v1 import graph, state, types  # pyright: ignore[reportMissingImports]

        vf = self._vf
        made: dict[str, Any] = {"system": types.SystemMessage, "user": types.UserMessage}
        prompt = [made.get(m["role"], types.AssistantMessage)(content=m["content"]) for m in self._messages(task.data)]
        trace = vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            state=state.state_cls(type(task))(), agent=vf.AgentInfo(config=vf.AgentConfig(), name="agent"),
        )  # fmt: skip
        reply = types.Response(
            id="rolltree", created=0, model="policy", message=types.AssistantMessage(content=text), finish_reason="stop"
        )
        graph.prepare_turn(trace, prompt).commit(reply)
        trace.is_completed = trace.ok = True
        return trace


def _demands(task: Any) -> dict[str, bool]:
    """What a task asks for beside a reply, and whether it does."""
    base: Any = next(kind for kind in type(task).__mro__ if kind.__module__ == "verifiers.v1.task")
    hooks = [*task.hooks("reward"), *task.hooks("metric"), *(judge.score for judge in task.plugged_judges())]
    needing = partial(_requires, "runtime")
    return {
        "needs a container": bool(type(task).NEEDS_CONTAINER),
        "has tools": bool(type(task).toolsets(task.config)),
        "prepares or ends a runtime": any(
            getattr(type(task), m) is not getattr(base, m) for m in ("setup", "finalize")
        ),
        "scores in a runtime": any(needing(hook) for hook in hooks),
        "lets the user speak first": task.data.prompt is None,
        "has no reward": not task.hooks("reward") and not task.plugged_judges(),
    }


def _requires(name: str, function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get(name)
    return parameter is not None and parameter.default is inspect.Parameter.empty
