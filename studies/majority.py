"""How far a majority can be trusted before any training: `python -m studies.majority`.

For each task: how often a rollout is right, how often the most frequent answer of a prompt is, and which share of a
prompt's wrong answers are the same one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine
from rolltree.filter.groups import live_leaves
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.task.registry import load_task
from rolltree.tree import Tree
from studies.command import run_study

Answers = Sequence[tuple[str, bool]]
"""Answers of one prompt, each with whether it is right."""


@dataclass(frozen=True)
class MajoritySettings:
    """How much is sampled."""

    tasks: tuple[str, ...] = ("calculator", "arithmetic")
    """Tasks to measure."""
    prompts: int = 128
    """Prompts of each task."""
    samples: int = 16
    """Samples of each item."""
    seed: int = 0
    """Where chance starts: the same seed gives the same result."""
    model: str = "nano"
    """The policy."""
    threads: int = 1
    """Threads of processor work."""


def tally(prompts: Sequence[Answers]) -> tuple[float, float, float]:
    """Share of right answers, of prompts whose most frequent answer is right, of wrong answers that agree with most."""
    right = [float(np.mean([good for _, good in answers])) for answers in prompts]
    voted = [Counter(said for said, _ in answers).most_common(1)[0][0] in {s for s, good in answers if good}
             for answers in prompts]  # fmt: skip
    wrong = [Counter(said for said, good in answers if not good) for answers in prompts]
    agree = sum(max(counts.values(), default=0) for counts in wrong)
    return float(np.mean(right)), float(np.mean(voted)), agree / max(sum(sum(c.values()) for c in wrong), 1)


def answers_of(tree: Tree) -> Answers:
    """What the finished rollouts of a prompt say."""
    return [(str(leaf.notes.get("answer")), leaf.scores["reward"] >= 1) for leaf in live_leaves(tree)]


async def sampled(engine: Engine, name: str, settings: MajoritySettings) -> list[Answers]:
    """Independent rollouts of a task's training prompts."""
    task = load_task(name)
    asked = islice(task.items("train", settings.seed), settings.prompts)
    forest = await grow(Independent(settings.samples), engine, task, asked, seed=settings.seed, budget=Budget())
    return [answers for tree in forest if (answers := answers_of(tree))]


def main(settings: MajoritySettings) -> None:
    """Print a line for each task."""
    import torch

    from rolltree.engine.local import LocalEngine

    torch.set_num_threads(settings.threads)
    engine = LocalEngine(settings.model)
    for name in settings.tasks:
        right, voted, agree = tally(asyncio.run(sampled(engine, name, settings)))
        print(f"{name}: {right:.1%} right, majority right on {voted:.1%}, {agree:.1%} of wrong answers agree")
    asyncio.run(engine.close())


if __name__ == "__main__":
    raise SystemExit(run_study("majority", MajoritySettings, main, __doc__))
