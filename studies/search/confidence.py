"""Where confidence tells right rollouts from wrong ones of the same prompt: `python -m studies.search.confidence`.

A search that asks the policy's confidence asks it early; most confident asks it of whole answers. Both are the chance
that of a right and a wrong rollout of one prompt the right one is the surer, ties half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.task.registry import load_task
from rolltree.tree.steps import solved
from studies.command import run_study

SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class ConfidenceSettings:
    """How much is run."""

    tasks: tuple[str, ...] = ("countdown", "records")
    """Tasks by name."""
    items: int = 96
    """Held-out items."""
    rollouts: int = 16
    """Rollouts of each."""
    seed: int = 0
    """Which items."""


def told(task: str, settings: ConfidenceSettings) -> tuple[list[float], int]:
    """How often the right rollout is the surer by that share of its tokens, and on how many prompts that is known."""
    from rolltree.engine.local import LocalEngine

    async def run() -> list[tuple[str, bool, list[float]]]:
        engine, loaded = LocalEngine("nano"), load_task(task)
        try:
            asked = islice(loaded.items("test", settings.seed), settings.items)
            forest = await grow(Independent(settings.rollouts), engine, loaded, asked, seed=settings.seed)
        finally:
            await engine.close()
        leaves = [(tree.id, leaf) for tree in forest for leaf in tree.leaves() if leaf.status == "done"]
        return [(name, solved(leaf), [sure(leaf.logp, share) for share in SHARES]) for name, leaf in leaves]

    rows = asyncio.run(run())
    names = sorted({name for name, _, _ in rows})
    each = [found for name in names if (found := surer([(s, c) for n, s, c in rows if n == name])) is not None]
    return [float(x) for x in np.mean(each, axis=0)], len(each)


def sure(logp: np.ndarray | None, share: float) -> float:
    """Mean log-prob of the first share of a rollout's tokens."""
    assert logp is not None
    return float(logp[: max(round(share * len(logp)), 1)].mean())


def surer(rollouts: Sequence[tuple[bool, Sequence[float]]]) -> list[float] | None:
    """How often a right rollout is surer than a wrong one, by share of its tokens; None where all are alike."""
    right, wrong = ([c for s, c in rollouts if s is kind] for kind in (True, False))
    if not right or not wrong:
        return None
    return [
        float(np.mean([(a[i] > b[i]) + (a[i] == b[i]) / 2 for a in right for b in wrong])) for i in range(len(SHARES))
    ]


def main(settings: ConfidenceSettings) -> None:
    """A line for each task."""
    for task in settings.tasks:
        found, prompts = told(task, settings)
        print(
            f"{task:10s} {prompts} prompts  "
            + "  ".join(f"{s:.0%}: {x:.3f}" for s, x in zip(SHARES, found, strict=True))
        )


if __name__ == "__main__":
    raise SystemExit(run_study("search.confidence", ConfidenceSettings, main, __doc__))
