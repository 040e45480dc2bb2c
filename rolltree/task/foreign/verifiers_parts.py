"""What both kinds of verifiers tasks share: the library, task sets by name, prompts, traces and their rewards."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from rolltree.errors import RolltreeError
from rolltree.task.foreign.parts import Render, UnscorableError, number, text_of
from rolltree.task.items import TaskError
from rolltree.task.protocol import Verdict

LIMIT = 4096
"""Tasks read of a task set; those without end are cut here."""


class VerifiersMissingError(RolltreeError, ImportError):
    """verifiers is not installed."""


def library() -> Any:
    """verifiers' v1 API."""
    try:
        import verifiers.v1
        import verifiers.v1.utils.loaders
    except ImportError as error:
        raise VerifiersMissingError(
            f"verifiers:NAME needs the library verifiers, version 0.4 or later ({error}): "
            "pip install 'rolltree[verifiers]'"
        ) from None
    return verifiers.v1


def played_by(name: str) -> Any:
    """The class of the environment that plays a task set."""
    loaders: Any = library().utils.loaders
    try:
        loaders.taskset_class(name)
        return loaders.environment_class(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise TaskError(f"verifiers finds no task set {name!r}: {error}") from None


def configured(name: str, config: Mapping[str, Any]) -> Any:
    """A task set's configuration with the knobs given."""
    vf = library()
    loaders: Any = vf.utils.loaders
    wanted = loaders.concrete_type(loaders.taskset_class(name), vf.TasksetConfig) or vf.TasksetConfig
    try:
        return wanted(id=name, **config)
    except ValueError as error:
        raise TaskError(f"verifiers:{name} refuses its configuration: {' '.join(str(error).split())}") from None


def refuse_demands(who: str, task: Any) -> None:
    """Refuse tasks that need more than replies, by what they need."""
    for lack, told in _demands(task).items():
        if told:
            raise TaskError(f"{who} {lack}, which a rollout here cannot give it; run it with verifiers")


def messages_of(data: Any) -> list[dict[str, Any]]:
    """What a task says first, its system prompt before it."""
    asked = [{"role": "user", "content": data.prompt}] if isinstance(data.prompt, str) else [
        cast(dict[str, Any], message.model_dump(exclude_none=True)) for message in data.prompt or ()
    ]  # fmt: skip
    return ([{"role": "system", "content": data.system_prompt}] if data.system_prompt else []) + asked


def prompt_of(messages: Sequence[Mapping[str, Any]], render: Render | None, who: str) -> str:
    """Messages as the text the policy continues."""
    if render is not None:
        return render(messages)
    return "\n\n".join(text_of([message], f"a task of {who}") for message in messages)


def typed(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Messages in verifiers' own types."""
    from verifiers.v1 import types

    kinds: dict[str, Any] = {"system": types.SystemMessage, "user": types.UserMessage}
    return [kinds.get(m["role"], types.AssistantMessage)(content=m["content"]) for m in messages]


def new_trace(task: Any, name: str, config: Any = None) -> Any:
    """An empty trace of a task."""
    from verifiers.v1 import state

    vf = library()
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=state.state_cls(type(task))(), agent=vf.AgentInfo(config=config or vf.AgentConfig(), name=name),
    )  # fmt: skip


def commit_reply(trace: Any, history: list[Any], text: str) -> Any:
    """Write down that the policy said this after those messages; returns its message."""
    from verifiers.v1 import graph, types

    said = types.AssistantMessage(content=text)
    reply = types.Response(id="rolltree", created=0, model="policy", message=said, finish_reason="stop")
    graph.prepare_turn(trace, history).commit(reply)
    return said


def verdict_of(trace: Any, who: str, item: str, answer: str) -> Verdict:
    """A scored trace: its reward, with rewards and metrics as parts."""
    silent = [name for name, reward in trace.rewards.items() if reward is None]
    if silent or not trace.rewards:
        raise UnscorableError(f"{who} gave item {item!r} no {', '.join(silent) or 'reward'}")
    parts = {name: float(value) for name, value in trace.metrics.items() if value is not None}
    parts |= {name: float(reward.value) for name, reward in trace.rewards.items()}
    return Verdict(number(trace.reward, who, item), parts, answer.strip() or None)


def _demands(task: Any) -> dict[str, bool]:
    """What a task asks for beside replies, and whether it does."""
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
    }


def _requires(name: str, function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get(name)
    return parameter is not None and parameter.default is inspect.Parameter.empty
