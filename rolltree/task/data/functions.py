"""Reward functions of a file: TRL's `f(completions, **columns)` and verl's `compute_score(data_source, …)`.

They get the whole text, think tags included, as they do there; one rollout at a time.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rolltree.task.data.builtin import Ask, Completion, RewardResult
from rolltree.task.data.printed import cut_prints
from rolltree.task.foreign.parts import locate, number, shown
from rolltree.task.foreign.threads import awaited, beside
from rolltree.task.items import TaskError

VERL = ("solution_str", "ground_truth")
TRL = "completions"
MESSAGES = "messages"
"""Key in an item's meta: the prompt as messages, where the data has messages."""
COLUMNS = "columns"
"""Key in an item's meta: the other columns of its row."""


class RewardCrashError(TaskError):
    """A reward function raised: the rollout has no outcome."""


def function(address: str) -> Ask:
    """A reward function by its address, file.py:name or module:name."""
    call = locate(address, "the reward")
    if not callable(call):
        raise TaskError(f"the reward {address} is no function but {type(call).__name__}")
    try:
        takes = inspect.signature(call).parameters
    except (TypeError, ValueError):
        takes = {}
    if all(name in takes for name in VERL):
        arguments = _verl
    elif TRL in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        arguments = _trl
    else:
        raise TaskError(
            f"the reward {address} takes ({', '.join(takes)}); write it as TRL does, f(completions, **columns), or as "
            "verl does, compute_score(data_source, solution_str, ground_truth, extra_info)"
        )
    open_ended = any(p.kind is p.VAR_KEYWORD for p in takes.values())

    def ask(said: Completion) -> RewardResult:
        given = {k: v for k, v in arguments(said).items() if open_ended or k in takes}
        try:
            with cut_prints(f"the reward {address}"):
                told = call(**given)
                if inspect.isawaitable(told):
                    told = awaited(cast(Any, told))
        except BaseException as error:  # sys.exit() too ends this call alone
            raise RewardCrashError(
                f"the reward {address} crashed on item {said.item.id!r}: {_line(error)}{_at(error)}"
            ) from error
        try:
            return _told(told, said, address, arguments is _trl)
        except TaskError:
            raise
        except Exception as error:  # an answer of a class of its own does what it likes
            raise RewardCrashError(
                f"the reward {address} answered what cannot be read for item {said.item.id!r}: {_line(error)}"
            ) from error

    async def beside_it(said: Completion) -> RewardResult:
        return await beside(lambda: ask(said))

    return beside_it


def _trl(said: Completion) -> dict[str, Any]:
    """One rollout as lists of one, in the conversational form where the prompt is a conversation."""
    meta = said.item.meta
    messages = meta.get(MESSAGES)
    columns = {key: [value] for key, value in cast(Mapping[str, Any], meta.get(COLUMNS, {})).items()}
    completion: Any = said.whole if messages is None else [{"role": "assistant", "content": said.whole}]
    return {
        **columns, "prompts": [str(said.item.prompt) if messages is None else list(messages)],
        "completions": [completion], "completion_ids": [None],
    }  # fmt: skip


def _verl(said: Completion) -> dict[str, Any]:
    columns = cast(Mapping[str, Any], said.item.meta.get(COLUMNS, {}))
    return {
        "data_source": columns.get("data_source", ""), "solution_str": said.whole, "ground_truth": said.item.answer,
        "extra_info": columns.get("extra_info"),
    }  # fmt: skip


def _told(told: Any, said: Completion, address: str, listed: bool) -> RewardResult:
    parts: dict[str, float] = {}
    if listed and not isinstance(told, str):
        values: Any = told.tolist() if hasattr(told, "tolist") else told
        if not isinstance(values, Sequence) or len(cast(Sequence[Any], values)) != 1:
            raise RewardCrashError(
                f"the reward {address} answered {shown(told)} for item {said.item.id!r}; it must give a list with one "
                "number for each completion"
            )
        told = cast(Sequence[Any], values)[0]
    elif isinstance(told, Mapping):
        scored = cast(Mapping[str, Any], told)
        parts = {
            str(k): number(v, f"the part {str(k)!r} of the reward {address}", said.item.id)
            for k, v in scored.items()
            if k != "score" and isinstance(v, int | float)
        }
        told = scored.get("score")
    return RewardResult(told, said.answer or None, "", parts)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _at(error: BaseException) -> str:
    """Where in somebody's file it happened."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_HERE)]
    return f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""


_HERE = str(Path(__file__).resolve().parents[2])
