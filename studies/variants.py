"""Bugs and inert switches of released code, both ways: `python -m studies.variants` writes the page.

Each contrast runs a recipe as this library has it and as the released code comes to, by one knob, on the same items and
seeds, with a frozen policy; the unit of every interval is a prompt's tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rolltree.compare.stats import Interval, paired_interval
from rolltree.control.ledger import Budget
from rolltree.credit.registry import load_credit
from rolltree.engine.protocol import Engine
from rolltree.generate.runner import grow
from rolltree.recipe.check import check
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import load_recipe
from rolltree.task.registry import load_task
from rolltree.tree import Node, Tree
from rolltree.tree.table import table
from rolltree.tree.views import metrics
from studies.command import run_study
from studies.papers import installed, studies_with

Knobs = Mapping[str, Any]
PerTree = Callable[[Tree], float]
"""A number of one tree; NaN leaves it out on both sides."""


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One measure of one switch, as released and as it is here."""

    recipe: str
    switch: str
    """The knob: released value → value here."""
    measure: str
    released: float
    here: float
    effect: Interval
    """Here minus released, paired by tree."""

    @property
    def matters(self) -> bool:
        """Whether the interval leaves 0 out."""
        return 0.0 not in self.effect and self.effect.estimate != 0.0


@dataclass(frozen=True, slots=True)
class VariantRollouts:
    """Two arms of one recipe on the same items of a nano task."""

    recipe: str
    switch: str
    task: str
    released: Knobs
    here: Knobs
    common: Knobs = field(default_factory=dict[str, Any])
    level: int | None = None
    measures: Mapping[str, PerTree] = field(default_factory=dict[str, PerTree])

    def rows(self, engine: Engine, items: int, seed: int) -> list[VariantRow]:
        """Grow both and compare tree by tree."""
        arms = [self.forest(engine, knobs, items, seed) for knobs in (self.released, self.here)]
        return [
            compared(self.recipe, self.switch, name, *([measure(tree) for tree in arm] for arm in arms))
            for name, measure in self.measures.items()
        ]

    def forest(self, engine: Engine, knobs: Knobs, items: int, seed: int) -> list[Tree]:
        """Trees with rewards as they would be credited."""
        parts = compose(load_recipe(self.recipe, **self.common, **knobs))
        task = load_task(self.task, level=self.level)
        check(parts, engine, task)
        asked = islice(task.items("train", seed), items)
        forest = asyncio.run(grow(parts.strategy, engine, task, asked, seed=seed, budget=Budget()))
        for tree in forest:
            for shaper in parts.shapers:
                shaper(tree, task.max_tokens)
        return list(forest)


def compared(recipe: str, switch: str, measure: str, released: Sequence[float], here: Sequence[float]) -> VariantRow:
    """A row from paired numbers."""
    pairs = [(r, h) for r, h in zip(released, here, strict=True) if np.isfinite(r) and np.isfinite(h)]
    r, h = [p[0] for p in pairs], [p[1] for p in pairs]
    return VariantRow(recipe, switch, measure, float(np.mean(r)), float(np.mean(h)), paired_interval(h, r))


# -- measures of a tree ----------------------------------------------------------------------------------------------


def done(tree: Tree) -> list[Node]:
    """Finished leaves with an outcome."""
    return [leaf for leaf in tree.leaves() if leaf.status == "done" and "reward" in leaf.scores]


def answers(tree: Tree) -> float:
    """Distinct final answers."""
    return float(metrics(tree).answers)


def duplicated(tree: Tree) -> float:
    """Leaves that say exactly what another one says."""
    return float(metrics(tree).duplicated)


def decoded(tree: Tree) -> float:
    """Tokens sampled, each prefix once."""
    return float(metrics(tree).decoded)


def truth(leaf: Node) -> float:
    """The verifier's word, also where a vote replaced it."""
    return leaf.scores.get("outcome", leaf.scores["reward"])


def solved(tree: Tree) -> float:
    """Whether any leaf is right."""
    return float(any(truth(leaf) >= 1 for leaf in done(tree)))


def reward(tree: Tree) -> float:
    """Mean outcome."""
    return float(np.mean([truth(leaf) for leaf in done(tree)])) if done(tree) else np.nan


def spread(tree: Tree) -> float:
    """Standard deviation of outcomes: what a group has to compare."""
    return float(np.std([truth(leaf) for leaf in done(tree)])) if done(tree) else np.nan


def forked(tree: Tree) -> float:
    """Places where the tree forks below its root."""
    return float(sum(len(n.children) > 1 for n in tree if n.parent is not None))


def odds(tree: Tree) -> float:
    """Mean chance with which forks were drawn."""
    chances = [event.numbers["chance"] for event in tree.events if "chance" in event.numbers]
    return float(np.mean(chances)) if chances else np.nan


def shift(tree: Tree) -> float:
    """Largest change of a log-prob by standing behind another prefix than it was written behind."""
    return float(max((e.numbers["shift"] for e in tree.events if "shift" in e.numbers), default=0.0))


ROLLOUTS = (
    VariantRollouts(
        "echo",
        "stems=16 (the gate never opens) → 8",
        "arithmetic",
        {"stems": 16},
        {"stems": 8},
        {"leaves": 16, "prune": "none"},
        measures={"distinct answers": answers, "any leaf right": solved, "tokens": decoded},
    ),
    VariantRollouts(
        "echo",
        "prune=none (thresholds never reached) → truncate",
        "arithmetic",
        {"prune": "none"},
        {"prune": "truncate"},
        {"leaves": 16},
        measures={"mean outcome": reward, "tokens": decoded},
    ),
    VariantRollouts(
        "rose",
        "form=literal → kept",
        "countdown",
        {"form": "literal"},
        {"form": "kept"},
        {"restart": 0.25},
        measures={"distinct answers": answers, "duplicated leaves": duplicated, "any leaf right": solved},
    ),
    VariantRollouts(
        "rose",
        "consume=False → True",
        "countdown",
        {"consume": False},
        {"consume": True},
        {"restart": 0.25},
        measures={"distinct answers": answers, "duplicated leaves": duplicated, "any leaf right": solved},
    ),
    VariantRollouts(
        "treepo",
        "fill=glued (stale request) → boundary",
        "countdown",
        {"fill": "glued"},
        {"fill": "boundary"},
        {"leaves": 12, "segment": 5},
        measures={"mean outcome": reward, "largest shift of a log-prob": shift},
    ),
    VariantRollouts(
        "latr",
        "fill=copy → restart",
        "countdown",
        {"fill": "copy"},
        {"fill": "restart"},
        measures={
            "duplicated leaves": duplicated,
            "spread of outcomes": spread,
            "any leaf right": solved,
            "tokens": decoded,
        },
    ),
    VariantRollouts(
        "arpo",
        "reference=0 (stale table) → None (first turn of the path)",
        "lookup",
        {"reference": 0.0},
        {"reference": None},
        {"leaves": 8, "first": 4},
        measures={"odds of the forks made": odds, "forks": forked, "any leaf right": solved},
    ),
    VariantRollouts(
        "aepo",
        "keep_probe=False → True",
        "lookup",
        {"keep_probe": False},
        {"keep_probe": True},
        {"leaves": 8, "first": 4},
        measures={"tokens": decoded, "distinct answers": answers},
    ),
)


# -- credits and searches --------------------------------------------------------------------------------------------


def rose_values(engine: Engine, items: int, seed: int) -> list[VariantRow]:
    """Values by position against values by prefix, on the same trees: what the merging does to the credit."""
    made = VariantRollouts("rose", "values", "countdown", {}, {}, {"restart": 0.25, "leaves": 16})
    agree: list[float] = []
    size: list[float] = []
    for tree in made.forest(engine, {}, items, seed):
        view = table([tree])
        by = {name: load_credit("node_delta", by=name)(view).node for name in ("prefix", "position")}
        a, b = by["prefix"], by["position"]
        assert a is not None
        assert b is not None
        use = view.trainable & (np.abs(a) > 1e-9)
        if use.any():
            agree.append(float(np.average(np.sign(a[use]) == np.sign(b[use]), weights=view.length[use] + 1e-9)))
            size.append(float(np.abs(b - a)[use].sum() / np.abs(a)[use].sum()))
    switch = "values=position → prefix"
    return [
        compared("rose", switch, "share of tokens with the prefix's sign", agree, [1.0] * len(agree)),
        compared("rose", switch, "error of the credit relative to its size", size, [0.0] * len(size)),
    ]


def ets_rows(engine: Engine, items: int, seed: int) -> list[VariantRow]:
    """What a kept node costs, and the coverage term, against REBASE alone."""
    measures = {"right": chosen_right, "nodes on finished paths": alive, "tokens": decoded}
    pairs: tuple[tuple[str, Knobs, Knobs], ...] = (
        ("cost=nodes (as released) → tokens", {"cost": "nodes"}, {"cost": "tokens"}),
        ("cover=0 → 1.5", {"cover": 0.0}, {"cover": 1.5}),
        ("select=rebase → ets", {"select": "rebase"}, {"select": "ets"}),
    )
    rows: list[VariantRow] = []
    for switch, released, here in pairs:
        contrast = VariantRollouts("ets", switch, "arithmetic", released, here, {"width": 16}, 3, measures)
        rows += contrast.rows(engine, items, seed)
    return rows


def chosen_right(tree: Tree) -> float:
    """Whether the search's answer is one that the verifier accepted."""
    right = {str(leaf.notes.get("answer")) for leaf in done(tree) if truth(leaf) >= 1}
    return float(tree.notes.get("answer") in right)


def alive(tree: Tree) -> float:
    """Nodes on the paths of finished leaves: what a cache of prefixes holds in the end."""
    return float(len({n.id for leaf in done(tree) for n in tree.path(leaf)}))


def clip_range(engine: Engine, items: int, seed: int) -> tuple[float, float]:
    """Smallest and largest ε = 0.05 + 0.15 σ(4(1 − C)) of ECHO over real leaves, C their mean top-5 mass at the end."""
    made = VariantRollouts("echo", "", "arithmetic", {}, {}, {"leaves": 8, "stems": 8, "prune": "none"})
    found: list[float] = []
    for tree in made.forest(engine, {}, items, seed):
        for leaf in done(tree):
            mass = np.concatenate([np.exp(n.top.logp[:, :5]).mean(1) for n in tree.path(leaf) if n.top is not None])
            found.append(0.05 + 0.15 / (1 + np.exp(-4 * (1 - float(mass[-16:].mean())))))
    return min(found), max(found)


@dataclass(frozen=True)
class VariantSettings:
    """How much is run, and where the page goes."""

    out: Path = Path("docs/measured")
    """Folder that is written to."""
    items: int = 64
    """Trees per arm."""
    seed: int = 0
    """Where chance starts: the same seed gives the same result."""
    model: str = "nano"
    """The policy."""
    threads: int = 1
    """Threads of processor work."""


def main(settings: VariantSettings) -> None:
    """Run every contrast and write the page."""
    import torch

    from rolltree.engine.local import LocalEngine
    from studies.variants_page import write_page

    torch.set_num_threads(settings.threads)
    engine = LocalEngine(settings.model)
    on = (settings.items, settings.seed)
    rows: list[VariantRow] = []
    for contrast in ROLLOUTS:
        if installed(contrast.recipe):
            rows += contrast.rows(engine, *on)
            print(f"{contrast.recipe}: {contrast.switch}", flush=True)
    rows += rose_values(engine, *on) if installed("rose") else []
    rows += ets_rows(engine, *on) if installed("ets") else []
    for study in studies_with("variants"):
        rows += study.variants(*on)
    clip = clip_range(engine, *on) if installed("echo") else None
    print(write_page(settings.out, rows, clip, settings.items))
    asyncio.run(engine.close())


if __name__ == "__main__":
    raise SystemExit(run_study("variants", VariantSettings, main, __doc__))
