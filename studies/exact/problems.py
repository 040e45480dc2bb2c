"""Five problems: a bandit, a tree, a grid whose states repeat, options in a corridor, and a chain of tool calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from rolltree.tree.table import Floats
from studies.exact.problem import Move, Problem, State


def _logits(rows: int, actions: int, seed: int, spread: float = 0.5) -> Floats:
    return np.random.default_rng(seed).normal(0, spread, (rows, actions))


def bandit() -> Problem:
    """One decision among five, rewards 0, 0.2, 0.5, 0.8 and 1."""
    rewards = (0.0, 0.2, 0.5, 0.8, 1.0)
    return Problem(
        "bandit", "start", _logits(1, 5, 0), lambda _: 0, lambda _, a: (Move(1.0, rewards[a], None),), lambda _: True
    )


def tree() -> Problem:
    """Three decisions between two actions; the first matters most, the last hardly. One row per prefix."""
    prefixes = [p for n in range(3) for p in np.ndindex(*(2,) * n)]
    rows = {p: i for i, p in enumerate(prefixes)}
    outcome = {p: 0.7 * (p[0] == 1) + 0.25 * (p[1] == p[0]) + 0.05 * p[2] for p in np.ndindex(2, 2, 2)}

    def step(x: State, a: int) -> tuple[Move, ...]:
        path = (*cast(tuple[int, ...], x), a)
        return (Move(1.0, outcome[path], None),) if len(path) == 3 else (Move(1.0, 0.0, path),)

    return Problem("tree", (), _logits(len(rows), 2, 1), lambda x: rows[cast(tuple[int, ...], x)], step,
                   lambda x: len(cast(tuple[int, ...], x)) == 2)  # fmt: skip


def grid(size: int = 3, horizon: int = 6) -> Problem:
    """Walk from corner to corner within a time the policy does not see: it meets the same cell again and again."""
    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def step(x: State, a: int) -> tuple[Move, ...]:
        r, c, t = cast(tuple[int, int, int], x)
        r, c = (min(max(v + d, 0), size - 1) for v, d in zip((r, c), moves[a], strict=True))
        if (r, c) == (size - 1, size - 1):
            return (Move(1.0, 1.0, None),)
        return (Move(1.0, 0.0, None if t + 1 == horizon else (r, c, t + 1)),)

    def see(x: State) -> int:
        r, c, _ = cast(tuple[int, int, int], x)
        return r * size + c

    return Problem("grid", (0, 0, 0), _logits(size * size, 4, 2, 0.3), see, step, lambda _: True)


def options(rooms: int = 3, turns: int = 6) -> Problem:
    """A corridor of rooms; each opens when the action repeats the right subgoal. Turns choose KEEP or SWITCH, on SWITCH
    a subgoal, then an action. A state is (phase, turn, room, subgoal); the policy does not see the turn."""
    right = (0, 1, 1, 0)
    phases = ("switch", "subgoal", "action")

    def see(x: State) -> int:
        phase, _, room, goal = cast(tuple[str, int, int, int], x)
        return phases.index(phase) * rooms * 2 + room * 2 + goal

    def step(x: State, a: int) -> tuple[Move, ...]:
        phase, t, room, goal = cast(tuple[str, int, int, int], x)
        if phase == "switch":
            return (Move(1.0, 0.0, ("subgoal" if a else "action", t, room, goal)),)
        if phase == "subgoal":
            return (Move(1.0, 0.0, ("action", t, room, a)),)
        if a == goal == right[room]:
            room += 1
        if room == rooms:
            return (Move(1.0, 1.0, None),)
        return (Move(1.0, 0.0, None if t + 1 == turns else ("switch", t + 1, room, goal)),)

    return Problem(
        "options", ("subgoal", 0, 0, 0), _logits(3 * rooms * 2, 2, 3), see, step,
        lambda x: cast(tuple[str, int, int, int], x)[0] == "action", lambda x: cast(tuple[str, int, int, int], x)[0],
    )  # fmt: skip


def tools(failure: float = 0.1) -> Problem:
    """Three tool calls; the first choice of tool decides, the others do nothing, and any call may fail for good."""

    def step(x: State, a: int) -> tuple[Move, ...]:
        t, good = cast(tuple[int, bool], x)
        good = (a == 0) if t == 0 else good
        fine = Move(1 - failure, float(good), None) if t == 2 else Move(1 - failure, 0.0, (t + 1, good))
        return (fine, Move(failure, 0.0, None))

    def see(x: State) -> int:
        t, good = cast(tuple[int, bool], x)
        return 0 if t == 0 else 2 * t - 1 + good

    return Problem("tools", (0, False), _logits(5, 3, 4), see, step, lambda _: True)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "bandit": bandit, "tree": tree, "grid": grid, "options": options, "tools": tools,
}  # fmt: skip
"""Every exact problem under its name."""
