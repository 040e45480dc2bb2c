"""`rolltree card RUN`: how a run's rollouts were made and how they differ from plain sampling, to attach to a paper.

The survey of rollout strategies (Generate, Filter, Control, Replay) finds that most papers leave out what decides
their result: topology, guidance, group sizes, budgets, filters, replay, stop rules, and how far the distribution that
was trained on is from independent samples of the policy. A card states these from what a run recorded, never from
what it was meant to do; a forest of another program gets the part that its nodes can answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.markdown import Markdown

from rolltree.errors import RolltreeError
from rolltree.lab.card_numbers import Numbers, numbers
from rolltree.lab.trace import LabError, write_json
from rolltree.metrics.log import read_metrics
from rolltree.recipe.compose import compose
from rolltree.recipe.recipe import Card
from rolltree.recipe.registry import RECIPES, recipes
from rolltree.recipe.stored import Given, StoredNames
from rolltree.terminal import Terminal
from rolltree.tree import Forest, Tree, jsonl, parquet
from rolltree.tree.atomic import check_writable
from rolltree.tree.json_text import read_json


@dataclass(frozen=True)
class CardConfig:
    """State how a run's rollouts were made."""

    run: Path
    """A run folder, a folder of forests, or a file of nodes in the interchange format."""
    recipe: str = ""
    """The run's recipe, where that is one of your own: FILE.py:NAME. Stored files name registered parts only."""
    out: Path | None = None
    """Folder for card.json and card.md; default: the run folder, or beside the file, whose name then goes before."""
    json: bool = False
    """Print the JSON instead of the page."""


@dataclass(frozen=True)
class RolloutCard:
    """The card: what was set, where it is known, and what was counted."""

    source: str
    steps: tuple[int, ...]
    """Steps whose forests were counted; empty for a single forest."""
    numbers: Numbers
    recipe: Card | None = None
    settings: Mapping[str, Any] | None = None
    """The run's config.json; None for forests of other programs."""
    parts: Mapping[str, str] | None = None
    """Strategy, filters and shapers as the recipe builds them; None where this version does not have the recipe."""
    totals: Mapping[str, float] | None = None
    """Sums over all steps of metrics.jsonl: tokens, leaves, time."""


def main(config: CardConfig, console: Console | None = None) -> int:
    """Write card.json and card.md, and print one of them."""
    from rolltree.lab.card_text import markdown

    if config.out is not None:
        check_writable(config.out, folder=True)
    made = card(config.run, Given(recipe=config.recipe))
    folder = config.out or (config.run if config.run.is_dir() else config.run.parent)
    # Several files may lie in one folder, and each has its card.
    name = "card" if config.out or config.run.is_dir() else f"{config.run.stem}.card"
    write_json(folder / f"{name}.json", as_json(made))
    text = markdown(made)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    if config.json:
        print(json.dumps(as_json(made)))
    else:
        (console or Terminal()).print(Markdown(text))
    return 0


def card(path: Path, given: Given | None = None) -> RolloutCard:
    """The card of a run folder, a folder of forests, or an interchange file; `given` stands in for what it names."""
    if not path.exists():
        raise LabError(f"there is no run at {path}; give a run folder, a folder of forests or a file of nodes")
    try:
        if path.is_file():
            return RolloutCard(path.name, (), numbers(jsonl.read(path)))
        if not (path / "config.json").is_file():
            return _of_forests(path, path.name)
        return _of_run(path, given or Given())
    except RolltreeError:
        raise
    except (ValueError, OSError) as error:
        raise LabError(f"cannot make a card of {path}: {error}") from error


def as_json(made: RolloutCard) -> dict[str, Any]:
    """The card as plain values; what cannot be known is null."""
    return cast("dict[str, Any]", json.loads(json.dumps(asdict(made), default=str), parse_constant=lambda _: None))


def _of_run(path: Path, given: Given) -> RolloutCard:
    settings: Any = read_json((path / "config.json").read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or not isinstance(settings.get("parts", {}), dict):
        raise LabError(f"{path / 'config.json'} holds no settings of a run; restore it")
    settings = cast("dict[str, Any]", settings)
    counted = _of_forests(path / "forests", path.name)
    name = str(settings.get("parts", {}).get("name", ""))
    known = RECIPES.find(given.recipe).card if given.recipe else _card_of(name)
    return RolloutCard(
        path.name, counted.steps, counted.numbers, known, settings,
        _parts(StoredNames(str(path), path, given), name, settings.get("recipe")) if known else None,
        _totals(read_metrics(path / "metrics.jsonl")),
    )  # fmt: skip


def _card_of(name: str) -> Card | None:
    known = recipes().get(name)
    return known.card if known else None


def _parts(names: StoredNames, name: str, stored: Any) -> dict[str, str] | None:
    """The parts of the recipe with the knobs the run had; None when this version's recipe has other knobs, or when they
    name code."""
    try:
        made = compose(names.recipe(name, cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}))
    except RolltreeError:
        return None
    whole = {"strategy": (made.strategy,), "filters": made.filters, "shapers": made.shapers}
    return {part: ", ".join(map(repr, things)) or "none" for part, things in whole.items()}


def _of_forests(path: Path, source: str) -> RolloutCard:
    found = parquet.parts(path) if path.is_dir() else []
    if not found:
        raise LabError(f"{path} holds no forests; train with forests_every above 0 to keep some")
    trees: list[Tree] = []
    for step, folder in found:
        forest: Forest = parquet.load(folder)
        for tree in forest:
            tree.id = tree.id if step is None else f"step {step}: {tree.id}"
            trees.append(tree)
    return RolloutCard(source, tuple(step for step, _ in found if step is not None), numbers(trees))


SUMMED = ("budget/decoded", "budget/prefilled", "budget/leaves", "budget/env_steps", "budget/judge_calls",
          "budget/trained", "rollout/submitted", "rollout/trained", "rollout/kept", "rollout/running",
          "rollout/dropped", "rollout/waiting")  # fmt: skip
"""Metrics of which a card says the sum over steps."""


def _totals(lines: list[dict[str, Any]]) -> dict[str, float]:
    steps = [line for line in lines if line["kind"] == "train"]
    names = {k for line in steps for k in line if k in SUMMED or k.startswith("rollout/dropped/")}
    out = {name: float(sum(line.get(name) or 0.0 for line in steps)) for name in sorted(names)}
    last = steps[-1] if steps else {}
    return out | {"steps": float(len(steps)), "seconds": float(last.get("time/total", 0.0))}
