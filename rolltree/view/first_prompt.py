"""The first prompt of a run as the model sees it: `prompt.json`, which training writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rolltree.analysis.source import RunSource, ViewError
from rolltree.tree.store.values import read_json

FILE = "prompt.json"
MOST = 4000
"""Tokens shown of a prompt."""


@dataclass(frozen=True)
class ShownToken:
    """One token of the prompt."""

    id: int
    text: str
    special: bool


@dataclass(frozen=True)
class FirstPrompt:
    """A prompt token by token."""

    item: str
    tokens: tuple[ShownToken, ...]
    hidden: int


def first_prompt(source: RunSource) -> FirstPrompt | None:
    """A run's first prompt; None where the run has not kept it."""
    path = source.inside(FILE)
    if source.kind != "run" or not path.is_file():
        return None
    try:
        told: dict[str, Any] = read_json(path.read_text(encoding="utf-8"))
        tokens = [ShownToken(int(t["id"]), visible(str(t["text"])), bool(t.get("special"))) for t in told["tokens"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ViewError(f"{path} cannot be read ({error}); delete it, or restore the run's own") from None
    return FirstPrompt(str(told.get("item", "")), tuple(tokens[:MOST]), max(0, len(tokens) - MOST))


def visible(text: str) -> str:
    """A token's text with its blanks to be seen."""
    return text.replace("\r", "␍").replace("\n", "⏎\n").replace("\t", "⇥\t").replace(" ", "·")
