"""What a run was asked to do, in a few words: out of its config.json, whatever wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Settings:
    """The settings worth a place on a first screen; "" where the file does not say."""

    recipe: str = ""
    task: str = ""
    model: str = ""
    seed: str = ""
    steps: int | None = None
    knobs: tuple[tuple[str, str], ...] = ()
    """The recipe's own knobs, in its order."""
    training: tuple[tuple[str, str], ...] = ()
    """The trainer's knobs."""


def settings_of(config: Mapping[str, Any]) -> Settings:
    """A run's settings."""
    train = _mapping(config.get("train"))
    task: Any = config.get("task", "")
    steps = train.get("steps")
    return Settings(
        recipe=str(_mapping(config.get("parts")).get("name", "")),
        task=" ".join(str(t) for t in cast("list[Any]", task)[:2] if t is not None) if isinstance(task, list)
        else str(task),
        model=str(config.get("model", "")),
        seed=str(train["seed"]) if "seed" in train else "",
        steps=steps if isinstance(steps, int) else None,
        knobs=tuple(_plain(_mapping(config.get("recipe")))),
        training=tuple((n, v) for n, v in _plain(train) if n not in ("seed", "steps")),
    )  # fmt: skip


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _plain(knobs: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Knobs that are a number, a word or a truth value; those of parts under the part's name."""
    for name, value in knobs.items():
        if isinstance(value, dict):
            yield from _plain(_mapping(value), f"{before}{name}.")
        elif name != "is" and isinstance(value, str | int | float) and value != "":
            yield f"{before}{name}", {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)[:60]
