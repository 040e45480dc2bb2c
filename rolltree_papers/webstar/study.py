"""What filtering steps is worth to a copy: `python -m rolltree_papers.webstar.study`.

An expert walks the grid world of the task `grid`: optimal with .7, else any move. A policy per state copies equally
many steps: of all rollouts, of the successful ones, or those that a grader of known errors calls good, which are taken
from failed rollouts too. A move is good where it is on a shortest way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal

import numpy as np

from rolltree.task.nano.grid import Grid
from rolltree.task.nano.world import MOVES, Walker, distances, parse
from rolltree.task.protocol import Item
from studies.command import run_study
from studies.lab.claim import Measured

Choice = Literal["all", "successful", "graded"]
WRONG, ROLLOUTS, STEPS = 0.3, 200, 120


@dataclass(frozen=True, slots=True)
class Step:
    """A move of the expert."""

    state: Walker
    move: str
    good: bool
    solved: bool
    """Whether its rollout reached the goal."""


def walked(item: Item, limit: int, rng: Random) -> list[Step]:
    """One rollout of the expert, until it is home or out of moves."""
    world, far = parse(item.meta["size"], item.prompt), distances(item.meta["size"], item.prompt)
    state, rows = Walker(world.start), list[tuple[Walker, str, bool]]()
    while not state.home and len(rows) < limit:
        best = min(far.get(world.move(state, m)[0], len(far)) for m in MOVES)
        good = [m for m in sorted(MOVES) if far.get(world.move(state, m)[0], len(far)) == best]
        move = rng.choice(sorted(MOVES)) if rng.random() < WRONG else rng.choice(good)
        rows.append((state, move, move in good))
        state = world.move(state, move)[0]
    return [Step(*row, state.home) for row in rows]


def chosen(steps: Sequence[Step], how: Choice, count: int, right: float, rng: Random) -> tuple[list[Step], float]:
    """So many steps by a rule, and the share of them from rollouts that failed. `right` = the grader's accuracy."""
    if how == "successful":
        pool = [s for s in steps if s.solved]
    elif how == "graded":
        pool = [s for s in steps if s.good == (rng.random() < right)]
    else:
        pool = list(steps)
    taken = rng.sample(pool, min(count, len(pool)))
    return taken, float(np.mean([not s.solved for s in taken])) if taken else 0.0


def reached(item: Item, copied: Sequence[Step], limit: int, rng: Random, tries: int = 40) -> float:
    """How often a policy that draws its moves as they were copied, and any move where nothing was, comes home."""
    world, seen = parse(item.meta["size"], item.prompt), defaultdict[Walker, Counter[str]](Counter)
    for step in copied:
        seen[step.state][step.move] += 1
    home = 0
    for _ in range(tries):
        state = Walker(world.start)
        for _ in range(limit):
            known = seen.get(state)
            moves, weights = (sorted(MOVES), None) if not known else (list(known), list(known.values()))
            state = world.move(state, rng.choices(moves, weights)[0])[0]
            if state.home:
                break
        home += state.home
    return home / tries


def arm(how: Choice, right: float, seed: int, items: int = 20) -> tuple[float, float]:
    """Goals reached by the copy, and the share of its steps from failed rollouts, over some layouts."""
    task, rows = Grid(level=2), list[tuple[float, float]]()
    for item in islice(task.items("train", seed), items):
        rng = Random(f"{seed}/{item.id}")
        limit = min(distances(item.meta["size"], item.prompt)[Walker(parse(item.meta["size"], item.prompt).start)] + 2,
                    task.max_turns)  # fmt: skip
        steps = [step for _ in range(ROLLOUTS) for step in walked(item, limit, rng)]
        taken, failed = chosen(steps, how, STEPS, right, rng)
        rows.append((reached(item, taken, limit, rng), failed))
    goals, failed = np.array(rows).mean(0)
    return float(goals), float(failed)


def filtered(seed: int) -> Measured:
    """Steps kept by a grader that is right at .9 against as many of successful rollouts."""
    goals, failed = arm("graded", 0.9, seed)
    return Measured(goals, arm("successful", 0.9, seed)[0], acted={"share of kept steps from failed rollouts": failed})


@dataclass(frozen=True)
class HindsightSettings:
    """How much is run."""

    seeds: int = 3
    """Sets of layouts."""


def main(settings: HindsightSettings) -> None:
    """Goals reached by rule and accuracy of the grader."""
    arms: list[tuple[Choice, float]] = [
        ("all", 1.0), ("successful", 1.0), ("graded", 0.5), ("graded", 0.7), ("graded", 0.9), ("graded", 1.0)
    ]  # fmt: skip
    for how, right in arms:
        goals, failed = np.array([arm(how, right, seed) for seed in range(settings.seeds)]).mean(0)
        name = f"{how} {right:g}" if how == "graded" else how
        print(f"{name:12s} goals reached {goals:.3f}  steps from failed rollouts {failed:.2f}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.webstar.study", HindsightSettings, main, __doc__))
