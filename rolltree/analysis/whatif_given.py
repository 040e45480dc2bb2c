"""What a what-if of a saved tree needs besides the tree: the policy that wrote it, its task, its item, its sampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from rolltree.analysis.source import RunSource, ViewError
from rolltree.credit.advantage import Credit
from rolltree.errors import RolltreeError
from rolltree.recipe.stored import StoredNameError
from rolltree.task.protocol import Item, Split, Task, distinct
from rolltree.tree import Tree

DRAWN = 100_000
"""Items of a task's stream that are looked through for the one of a tree."""


@dataclass(frozen=True)
class GivenWeights:
    """The weights that continue a tree."""

    model: str
    """A model's name or folder."""
    version: int | None
    """Training steps behind them; None where that is not known."""
    written: int | None
    """The version that wrote the tokens at the place; None where the tree does not say."""
    stored: bool = True
    """Whether the run names them; else they were asked for."""

    @property
    def sentence(self) -> str:
        """Which weights these are, and whether they are those that wrote the tree."""
        if self.version is None:
            return f"continued by {self.model}"
        name = "the model before the first step" if self.version == 0 else f"the checkpoint after step {self.version}"
        if self.written is None:
            return f"continued by {name}"
        if self.version == self.written:
            return f"continued by {name}, which wrote this place"
        return f"continued by {name}; the weights after step {self.written}, which wrote this place, were not kept"


def weights_of(
    source: RunSource, step: int | None, tree: Tree, node: int, token: int, policy: str = ""
) -> GivenWeights:
    """The weights to continue with: those asked for, else those that wrote the place, else the nearest that were kept.

    `policy` is a training step (0 = before the first) or a model.
    """
    written = _written(tree, node, token)
    kept = _kept(source)
    if policy and not policy.isdigit():
        return GivenWeights(policy, None, written, stored=False)
    if policy:
        if int(policy) not in kept:
            known = ", ".join(map(str, sorted(kept))) or "none"
            raise ViewError(
                f"{source.name} has no checkpoint of step {policy}; it has {known} "
                "(0 = the model before the first step); give one of them, or a model"
            )
        return _here(source, kept[int(policy)], int(policy), written)
    if not kept:
        raise ViewError(f"{source.name} does not say which policy wrote it; name one, such as --policy nano")
    wanted = written if written is not None else max(0, (step or 1) - 1)
    version = min(sorted(kept), key=lambda v: abs(v - wanted))
    return _here(source, kept[version], version, wanted)


def _here(source: RunSource, model: str, version: int, written: int | None) -> GivenWeights:
    return GivenWeights(source.names.model(model, "--policy"), version, written)


def _kept(source: RunSource) -> dict[int, str]:
    if source.kind != "run":
        return {}
    found = {int(p.name[5:]): p for p in source.inside("checkpoints").glob("step-*") if p.name[5:].isdigit()}
    out = {version: str(source.inside("checkpoints", path.name)) for version, path in found.items()}
    first = str(source.config.get("model", ""))
    return {0: first, **out} if first else out


def _written(tree: Tree, node: int, token: int) -> int | None:
    for here in reversed(tree.path(node)):
        if here.version is not None and len(here.version):
            at = token if here.id == node and token < len(here.version) else -1
            return int(here.version[at])
    return None


def task_of_run(source: RunSource, level: int | None = None) -> Task:
    """The task: the one given, at the level, else the run's."""
    if source.given.task:
        return source.names.task(source.given.task, level)
    said: Any = source.config.get("task")
    if not isinstance(said, list) or not said:
        raise ViewError(f"{source.name} does not say which task its rollouts are of; name it with --task")
    told = cast("list[Any]", said)
    found = told[1] if level is None and len(told) > 1 and isinstance(told[1], int) else level
    # Data and adapters have no levels; theirs is written down as 0.
    return source.names.task(str(told[0]), found or None)


def item_of(source: RunSource, task: Task, tree: Tree, seed: int = 0) -> Item:
    """The item a tree is about, out of the task's own stream; without it nothing could judge new rollouts."""
    for item in _items(source, task, seed):
        if item.id == tree.item:
            return item
    way = "--task and --level" if source.kind == "run" else "--task, --level and --items-seed"
    raise ViewError(
        f"item {tree.item!r} of tree {tree.id!r} is not among the first {DRAWN:,} of {task.name}; give those "
        f"it was drawn with: {way}"
    )


def _items(source: RunSource, task: Task, seed: int) -> Iterator[Item]:
    from rolltree.generate.random import mix

    train = source.config.get("train") if source.kind == "run" else None
    start = mix(int(_number(source, "seed", 0)), "items") if isinstance(train, dict) else seed
    splits: tuple[Split, ...] = ("train",) if isinstance(train, dict) else ("train", "test")
    for split in splits:
        size = distinct(task, split)
        yield from islice(task.items(split, start), DRAWN if size is None else min(size, DRAWN))


def temperature_of(source: RunSource) -> float:
    """How the run sampled."""
    return float(_number(source, "temperature", 1.0) or 1.0)


def limit_of(source: RunSource) -> int | None:
    """Policy tokens per path that the run allowed; None = the task's own."""
    found = _train(source).get("max_tokens")
    return found if isinstance(found, int) else None


def _number(source: RunSource, name: str, default: float) -> float:
    found: Any = _train(source).get(name)
    if found is not None and not (isinstance(found, int | float) and math.isfinite(found)):
        raise ViewError(f"{source.name} says train.{name}={found!r:.80}, which is no number; restore its config.json")
    return default if found is None else found


def _train(source: RunSource) -> dict[str, Any]:
    found: Any = source.config.get("train") if source.kind == "run" else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def credit_of(source: RunSource, name: str = "") -> tuple[str, Credit]:
    """A credit by its name, else the run's own with the run's knobs."""
    if name:
        return name, source.names.credit(name)
    from rolltree.recipe.compose import compose

    parts: Any = source.config.get("parts")
    stored = str(cast("dict[str, Any]", parts).get("name", "")) if isinstance(parts, dict) else ""
    recipe = source.given.recipe or stored
    if not recipe:
        raise ViewError(f"{source.name} does not say by which credit it was trained; name one, such as --credit grpo")
    said: Any = source.config.get("recipe")
    try:
        made = source.names.recipe(recipe, cast("dict[str, Any]", said) if isinstance(said, dict) else {})
        return f"the credit of {recipe}", compose(made).credit
    except StoredNameError:
        raise
    except RolltreeError as error:
        raise ViewError(
            f"the credit that {source.name} was trained by cannot be made again ({error}); name one, such as "
            "--credit grpo, or give the recipe again, as in --recipe FILE.py:NAME"
        ) from None


def tokens_by(source: RunSource, weights: GivenWeights) -> str:
    """Whose tokenizer shows the result."""
    return source.model or weights.model
