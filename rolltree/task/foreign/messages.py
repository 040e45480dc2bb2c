"""Prompts given as messages, as one text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from rolltree.task.items import TaskError

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
