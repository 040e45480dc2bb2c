"""What a recipe needs of its run (`rolltree.recipe.need`), met before the first token or told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rolltree.policy.models import MODELS
from rolltree.recipe.need import Need, lacking, pool
from rolltree.recipe.recipe import Card, Parts
from rolltree.task.protocol import Task, distinct
from rolltree.training.config import TrainConfig


def provided(
    card: Card | None, parts: Parts, task: Task, config: TrainConfig, model: str = "",
    before: Mapping[str, Any] | None = None,
) -> tuple[TrainConfig, list[str]]:  # fmt: skip
    """The configuration with what the recipe needs, and sentences of what was set and what stays open.

    A run that is resumed keeps what was set when it began (`before`, its own configuration).
    """
    if card is None:
        return config, []
    said: list[str] = []
    for need in card.needs:
        if need.kind == "revisits":
            config, line = _coming_back(card.name, parts, task, config, before)
        elif need.kind == "staleness":
            config, line = _older(card.name, need, parts, config, before)
        elif need.kind == "tags":
            line = _untaught(card.name, task, model)
        elif need.kind == "judge":
            line = _judged(card.name, parts)
        else:
            line = " ".join(lacking(card.name, (need,), task))
        said += [line] if line else []
    return config, said


def _coming_back(
    name: str, parts: Parts, task: Task, config: TrainConfig, before: Mapping[str, Any] | None
) -> tuple[TrainConfig, str]:
    drawn = config.steps * (parts.prompts or config.prompts)
    known = distinct(task, "train")
    items = config.items
    if items is None and before is not None:
        items = before.get("items")
        config = replace(config, items=items)
    there = min((n for n in (items, known) if n is not None), default=None)
    if there is not None and 2 * there <= drawn:
        return config, ""
    enough = pool(drawn)
    if items is not None or before is not None:
        return config, (
            f"{name} learns from prompts that come back, and few of {there or 'endless'} items do among the "
            f"{drawn:,} that this run asks; give --items {enough}, or more --steps"
        )
    return replace(config, items=enough), (
        f"--items {enough} was set: {name} learns from prompts that come back, so the run asks so many distinct items "
        "again and again; --items gives another number"
    )


def _older(
    name: str, need: Need, parts: Parts, config: TrainConfig, before: Mapping[str, Any] | None
) -> tuple[TrainConfig, str]:
    if not config.scheduler and before is not None:
        config = replace(config, scheduler=before.get("scheduler", ""))
    rounded = config.engine_precision != config.train_precision
    if config.staleness or parts.schedule is not None or rounded or config.scheduler not in ("", "sync"):
        return config, ""
    if need.name and not config.scheduler and before is None:
        return replace(config, scheduler=need.name), (
            f"--scheduler {need.name} was set: {name} corrects for rollouts of older policies, and in lock-step there "
            "are none; --scheduler sync or --staleness N says otherwise"
        )
    return config, (
        f"{name} corrects for rollouts of another policy than the one in training, and in lock-step there are next to "
        "none; give --scheduler areal or --staleness 4"
    )


def _untaught(name: str, task: Task, model: str) -> str:
    if model and model not in MODELS:
        return ""
    return (
        f"{name} needs a policy that begins its answers with the tags of {task.name}, and {model or 'nano'} was never "
        f"taught them: free rollouts earn nothing; teach it first (rolltree train otr --task {task.name}), or give "
        "--tags as an empty list where a mode is read off what was done"
    )


def _judged(name: str, parts: Parts) -> str:
    if parts.peers:
        return ""
    return (
        f"{name} needs a judge that compares answers, and this one reads the verifier's own grade: among answers that "
        "are right or wrong a right one never loses to another; give --judge likelihood"
    )
