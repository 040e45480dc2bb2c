"""What other people's reward functions answer, as a number or as no outcome at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from math import isnan
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from rolltree.registry import MISSING, OwnFileError, member, own_file, raised
from rolltree.task.items import TaskError

# Prompts given as messages, as one text.

Messages = Sequence[Mapping[str, Any]]
Render = Callable[[Messages], str]
"""Turns messages into the text the policy continues, for instance a tokenizer's chat template."""


def text_of(prompt: Any, where: str, render: Render | None = None) -> str:
    """The text of a prompt that is a text or messages; a dialogue of several messages needs `render`."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Sequence) or not all(isinstance(m, Mapping) for m in cast(Sequence[Any], prompt)):
        raise TaskError(f"{where}: the prompt must be a text or a list of messages, not {type(prompt).__name__}")
    messages = cast(Messages, prompt)
    if render is not None:
        return render(messages)
    if len(messages) == 1 and isinstance(content := messages[0].get("content"), str):
        return content
    raise TaskError(
        f"{where}: the prompt has {len(messages)} messages and nothing says how to write them as one text; "
        "pass render=, for instance the tokenizer's chat template"
    )


# A class or function by its address: `package.module:Name`, or `path/to/file.py:Name`.


def locate(address: str, what: str) -> Any:
    """What stands at an address; `what` names it where it cannot be found."""
    place, colon, name = address.rpartition(":")
    if not colon or not place or not name:
        raise TaskError(f"{what} {address!r} must be written as package.module:Name or path/to/file.py:Name")
    found: Any = imported(place, f"{what} {address!r}")
    for part in name.split("."):
        try:
            found = member(found, part, place)
        except OwnFileError as error:
            raise TaskError(f"{what} {address!r}: {error}") from error
        if found is MISSING:
            raise TaskError(f"{what} {address!r}: {place} has no {part!r}")
    return found


def imported(place: str, what: str) -> ModuleType:
    """A module by its name, or by its file where that ends in .py; `what` names who asks."""
    try:
        return own_file(Path(place)) if place.endswith(".py") else import_module(place)
    except OwnFileError as error:
        raise TaskError(f"{what} cannot be imported: {error}") from None
    except Exception as error:  # the module may fail in any way
        raise TaskError(f"{what} cannot be imported: {raised(error)}") from error


SHOWN = 200
"""Characters of an answer that are shown."""


class UnscorableError(TaskError):
    """A reward function gave no number for a rollout: its leaf is failed, never worth 0."""


MOST = 1e12
"""Largest size of a reward. Beyond it the squares in a group's spread swallow what tells its rollouts apart."""


def number(told: Any, who: str, item: str) -> float:
    """A reward as a finite number."""
    if hasattr(told, "item"):
        with suppress(ValueError, RuntimeError):  # an array of several is no number
            told = told.item()  # a scalar of numpy or torch
    said = f"{who} answered {shown(told)} for item {item!r}"
    if not isinstance(told, int | float) or (isinstance(told, float) and isnan(told)):
        raise UnscorableError(f"{said}, not a number; let it return one, as 0.5")
    if abs(told) > MOST:
        raise UnscorableError(f"{said}; let it stay within ±{MOST:g}")
    return float(told)


def shown(told: Any) -> str:
    """An answer as it is shown."""
    said = f"a number of {told.bit_length()} bits" if isinstance(told, int) and told.bit_length() > 256 else repr(told)
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}… ({len(said):,} characters)"
