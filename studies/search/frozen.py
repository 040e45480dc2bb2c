"""Searches against majority and most confident at equal tokens: `python -m studies.search.frozen`.

The task is countdown, whose verifier may be asked while one searches: it reads the equation and knows no answer. A
search that asks it is held against independent rollouts that are chosen among by it too (`verified`).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rolltree.compare.arms import Arm
from rolltree.compare.frozen import BASELINES, MANY, FrozenRunner
from rolltree.compare.runner import Conditions, Spec
from rolltree.compare.stats.paired import paired_interval
from rolltree.errors import unknown
from rolltree.generate.runner import grow
from rolltree.recipe.registry import counter_of, load_recipe
from rolltree.task.registry import load_task
from rolltree.tree import Forest, Tree
from studies.command import run_study
from studies.lab.claim import Measured

TOKENS, ITEMS = 250, 48
Row = Mapping[str, float]
VERIFIED = Arm("verified best of n", "best_of_n", (("final", "best"), ("n", MANY), ("worth", "verifier")))
ARMS: Mapping[str, Arm] = {
    "one": Arm("one rollout", "best_of_n", (("n", 1),)),
    **{arm.label: arm for arm in BASELINES},
    "verified": VERIFIED,
    "ets": Arm("ets", "ets"),
    "beam": Arm("beam", "ets", (("select", "beam"),)),
    "dvts": Arm("dvts", "ets", (("select", "dvts"),)),
    **{
        f"{select}, best": Arm(f"{select}, best", "ets", (("final", "best"), ("select", select), ("width", 12)))
        for select in ("ets", "rebase", "beam", "dvts")
    },
    **{
        f"rebase, 4 tokens, {width}": Arm(
            f"rebase, 4 tokens, {width}",
            "ets",
            (("delimiter", ""), ("final", "best"), ("select", "rebase"), ("step", 4), ("width", width)),
        )
        for width in (16, 8)
    },
    "mcts": Arm("mcts", "mcts"),
    "mcts verified": Arm("mcts verified", "mcts", (("final", "best"), ("worth", "verifier"))),
    "i_mcts": Arm("i_mcts", "i_mcts"),
    "tot": Arm("tot", "tot", (("turns", 200),)),
    "tot, best first": Arm("tot, best first", "tot", (("order", "best"), ("turns", 200))),
}


def answered(arm: Arm, seed: int, *, tokens: int = TOKENS, items: int = ITEMS, task: str = "countdown") -> Row:
    """The numbers of held-out items answered with so many tokens each."""
    spec = Spec(arm, seed, Conditions(task, float(tokens * items), eval_items=items))
    with tempfile.TemporaryDirectory() as folder:
        trace = FrozenRunner().run(spec, Path(folder), lambda cost, what: None)
    return {name: float(value) for name, value in trace.rows[0].items()}


def accuracy(arm: Arm, seed: int, **asked: Any) -> float:
    """Share of them answered right."""
    return answered(arm, seed, **asked)["eval/pass@1"]


def held(name: str, against: float, seed: int) -> Measured:
    """An arm against a number, with what proves that it searched."""
    row, counter = answered(ARMS[name], seed), counter_of(ARMS[name].recipe)
    assert counter is not None
    return Measured(row["eval/pass@1"], against, acted={counter.metric: row[counter.metric]})


def _best(names: Sequence[str], seed: int) -> float:
    return max(accuracy(ARMS[name], seed) for name in names)


def drawn(seed: int, items: int = 96) -> Forest:
    """Held-out items answered by the recipe with its defaults: eight rollouts and a majority."""
    asked = list(islice(load_task("countdown").items("test", seed), items))

    async def run() -> Forest:
        from rolltree.engine.local import LocalEngine

        engine = LocalEngine("nano")
        try:
            strategy = load_recipe("best_of_n").build().strategy
            return await grow(strategy, engine, load_task("countdown"), asked, seed=seed)
        finally:
            await engine.close()

    return asyncio.run(run())


def voted(tree: Tree) -> tuple[float, float, float]:
    """Whether the chosen answer is right, the share of the answers that are, and whether the vote left the first."""
    said = [leaf for leaf in tree.leaves() if leaf.notes.get("answer") is not None]
    if not said:
        return 0.0, 0.0, 0.0
    right = [leaf.scores.get("reward", 0.0) >= 1 for leaf in said]
    answers = [leaf.notes["answer"] for leaf in said]
    won = right[answers.index(tree.notes["answer"])]
    return float(won), float(np.mean(right)), float(answers[0] != tree.notes["answer"])


def best_of_n(seed: int) -> Measured:
    """The majority of eight rollouts against a random one of those of the eight that have an answer."""
    rows = [voted(tree) for tree in drawn(seed)]
    chosen, one, left = (float(np.mean(column)) for column in zip(*rows, strict=True))
    return Measured(chosen, one, acted={"answers that the vote changed": left})


def mcts(seed: int) -> Measured:
    """MCTS against the better of majority and most confident."""
    return held("mcts", _best(("majority", "most confident"), seed), seed)


def tot(seed: int) -> Measured:
    """Depth first with the verifier against as many rollouts as the tokens buy, chosen among by the verifier too."""
    return held("tot", accuracy(ARMS["verified"], seed), seed)


@dataclass(frozen=True)
class FrozenSettings:
    """How much is run."""

    seeds: int = 3
    """Sets of items."""
    items: int = ITEMS
    """Held-out items of each."""
    tokens: int = TOKENS
    """Most tokens for an item."""
    task: str = "countdown"
    """A task's name."""
    first: int = 0
    """The first seed: other items, for what is to be confirmed."""
    arms: tuple[str, ...] = ()
    """Arms by name; none = all."""


def main(settings: FrozenSettings) -> None:
    """A line for each arm: mean accuracy and its standard error over seeds; what it is ahead of each baseline by, with
    a 95 % interval over seeds.
    """
    asked: dict[str, Any] = {"tokens": settings.tokens, "items": settings.items, "task": settings.task}
    found: dict[str, list[float]] = {}
    for name in settings.arms or tuple(ARMS):
        if name not in ARMS:
            raise unknown("arm", name, ARMS)
        seeds = range(settings.first, settings.first + settings.seeds)
        found[name] = mine = [accuracy(ARMS[name], seed, **asked) for seed in seeds]
        error = float(np.std(mine, ddof=1)) / len(mine) ** 0.5 if len(mine) > 1 else 0.0
        told = f"{name:18s} {100 * np.mean(mine):5.1f} ± {100 * error:.1f} %"
        for other in (arm.label for arm in BASELINES if arm.label in found and arm.label != name and len(mine) > 1):
            ahead = paired_interval(mine, found[other])
            told += f"  against {other} {100 * ahead.estimate:+.1f} ({100 * ahead.low:+.1f} to {100 * ahead.high:+.1f})"
        print(told, flush=True)


if __name__ == "__main__":
    raise SystemExit(run_study("search.frozen", FrozenSettings, main, __doc__))
