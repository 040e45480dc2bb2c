"""A curriculum on the horizon (TTI) against horizons that stay: walkers on small mazes, imitating their successes.

A walker sees in which direction the goal lies and which neighbours are walls, so what it learns on near goals serves
far ones. Past successes are drawn by TTI's own rule; environment steps are what both sides may spend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolltree.recipe.compose import compose
from rolltree.recipe.registry import load_recipe
from rolltree.replay.buffer import Recall, ReplayBuffer, RolloutBatch
from rolltree.tree import Tree
from studies.lab.claim import Measured

SIDE, WALLS, LONGEST, SHORTEST = 9, 0.2, 30, 10
BATCH, RATE, BUDGET, HELD_OUT = 64, 4.0, 30_000, 2_000
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
NEAR, FAR = 3, 7
"""Goals up to so many cells away are near, those beyond the other are far: the domains of replay."""
CURRICULUM = "10, 20 at 4, 30 at 12"
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Walks:
    """Walks side by side, each in a maze of its own."""

    seen: NDArray[np.int64]
    """(steps, walks): what was seen; −1 once the goal was reached."""
    done: NDArray[np.int64]
    reached: NDArray[np.bool_]
    far: NDArray[np.int64]
    """Cells to the goal, walls aside."""


def chances(logits: Floats) -> Floats:
    """Of the four moves, by what is seen."""
    z = np.exp(logits - logits.max(1, keepdims=True))
    return z / z.sum(1, keepdims=True)


def walk(p: Floats, count: int, horizon: int, rng: np.random.Generator) -> Walks:
    """So many mazes, whose goals need not be within reach, each walked for `horizon` steps at most."""
    walls = np.ones((count, SIDE + 2, SIDE + 2), np.bool_)
    walls[:, 1:-1, 1:-1] = rng.random((count, SIDE, SIDE)) < WALLS
    at, goal = (rng.integers(1, SIDE + 1, (count, 2)) for _ in range(2))
    for place in (at, goal):
        walls[np.arange(count), place[:, 0], place[:, 1]] = False
    far, there = np.abs(at - goal).sum(1), (at == goal).all(1)
    seen, done = np.full((horizon, count), -1), np.zeros((horizon, count), np.int64)
    every = np.arange(count)
    for step in range(horizon):
        signs = np.sign(goal - at) + 1
        shut = sum((walls[every, at[:, 0] + y, at[:, 1] + x] << i for i, (y, x) in enumerate(MOVES)), np.zeros(count))
        view = (16 * (3 * signs[:, 0] + signs[:, 1]) + shut).astype(np.int64)
        move = (p[view].cumsum(1) < rng.random((count, 1))).sum(1).clip(max=3)
        seen[step], done[step] = np.where(there, -1, view), move
        to = at + np.asarray(MOVES)[move]
        stays = there | walls[every, to[:, 0], to[:, 1]]
        at = np.where(stays[:, None], at, to)
        there = there | (at == goal).all(1)
    return Walks(seen, done, there, far)


def trained(seed: int, horizon: str) -> tuple[float, float, int]:
    """Goals reached in `LONGEST` steps after `BUDGET` environment steps, steps to them, and successes recalled."""
    rng, logits = np.random.default_rng([123, seed]), np.zeros((9 * 16, 4))
    recipe, past, rule = load_recipe("tti", horizon=horizon), ReplayBuffer(), Recall(0.5, 1_000, "recent", solved=True)
    paths: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    spent = step = recalled = 0
    while spent < BUDGET:
        turns: int = compose(recipe, step).control.turns  # pyright: ignore
        again = past.draw(rule.count(BATCH, len(past.trees)), step, "recent")
        walks, fresh = walk(chances(logits), BATCH - len(again), turns, rng), list[Tree]()
        spent += int((walks.seen >= 0).sum())
        for i in np.flatnonzero(walks.reached):
            domain = "near" if walks.far[i] <= NEAR else "mid" if walks.far[i] <= FAR else "far"
            moves = walks.seen[:, i] >= 0
            tree = Tree(f"{step}/{i}", [0], item=f"{domain}-{step}/{i}")
            tree.extend(tree.root, walks.done[moves, i], status="done", scores={"reward": 1.0})
            fresh.append(tree)
            paths[tree.id] = walks.seen[moves, i], walks.done[moves, i]
        past.remember(RolloutBatch(fresh), rule)
        logits += RATE * _push(logits, [paths[tree.id] for tree in (*fresh, *again) if len(paths[tree.id][0])])
        recalled += len(again)
        step += 1
    judged = walk(chances(logits), HELD_OUT, LONGEST, np.random.default_rng([7, seed]))
    return float(judged.reached.mean()), float((judged.seen >= 0).sum(0)[judged.reached].mean()), recalled


def _push(logits: Floats, walks: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Floats:
    """The gradient of likelihood: the mean over walks of their means over steps."""
    out, p = np.zeros_like(logits), chances(logits)
    for seen, done in walks:
        np.add.at(out, seen, (np.eye(4)[done] - p[seen]) / len(done) / len(walks))
    return out


def tti(seed: int) -> Measured:
    """Goals reached after the curriculum, against the better of two horizons that stay, at equal environment steps."""
    ours, _, recalled = trained(seed, CURRICULUM)
    fixed = max(trained(seed, f"{h}")[0] for h in (SHORTEST, LONGEST))
    return Measured(ours, fixed, acted={"rollout/recalled_groups": float(recalled)})
