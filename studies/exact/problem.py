"""A finite decision process under a softmax table, solved by enumeration."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from rolltree.tree.table import Floats

State = Hashable


@dataclass(frozen=True, slots=True)
class Move:
    """One outcome of an action: its probability, the reward it grants, and the next state (None = the end)."""

    p: float
    reward: float
    state: State | None


@dataclass(frozen=True, slots=True)
class Problem:
    """States form a directed acyclic graph (time is part of a state where states repeat).

    `see` is the row of the policy's table a state is shown as; several states may look alike. `phase` names the kind
    of decision; a turn ends after each action for which `turn_ends` is true, and the environment then answers.
    """

    name: str
    start: State
    logits: Floats
    """(rows, actions) of the softmax policy; −inf where an action does not exist."""
    see: Callable[[State], int]
    step: Callable[[State, int], tuple[Move, ...]]
    turn_ends: Callable[[State], bool]
    phase: Callable[[State], str] = lambda _: "action"

    @property
    def policy(self) -> Floats:
        """π(a | row)."""
        e = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


@dataclass(frozen=True, slots=True)
class Solved:
    """What enumeration knows: expected return J, V and Q of every state, how often it is visited, and ∇J."""

    objective: float
    value: dict[State, float]
    action_value: dict[State, Floats]
    visits: dict[State, float]
    gradient: Floats
    """(rows, actions): ∇J with respect to the logits, Σ visits · π (Q − V)."""


def solve(problem: Problem) -> Solved:
    """Enumerate a problem under its policy."""
    policy = problem.policy
    order = _topological(problem)
    value: dict[State, float] = {}
    action_value: dict[State, Floats] = {}
    for x in reversed(order):
        row = policy[problem.see(x)]
        q = np.zeros(len(row))
        for a in np.flatnonzero(row > 0):
            q[a] = sum(m.p * (m.reward + (0.0 if m.state is None else value[m.state])) for m in problem.step(x, int(a)))
        action_value[x], value[x] = q, float(row @ q)
    visits = dict.fromkeys(order, 0.0)
    visits[problem.start] = 1.0
    gradient = np.zeros_like(problem.logits)
    for x in order:
        row = policy[problem.see(x)]
        gradient[problem.see(x)] += visits[x] * row * (action_value[x] - value[x])
        for a in np.flatnonzero(row > 0):
            for m in problem.step(x, int(a)):
                if m.state is not None:
                    visits[m.state] += visits[x] * row[a] * m.p
    return Solved(value[problem.start], value, action_value, visits, gradient)


def _topological(problem: Problem) -> list[State]:
    """States reachable from the start, each before all it can lead to."""
    policy = problem.policy
    done: dict[State, bool] = {}
    out: list[State] = []
    stack: list[tuple[State, bool]] = [(problem.start, False)]
    while stack:
        x, leaving = stack.pop()
        if leaving:
            done[x] = True
            out.append(x)
            continue
        if x in done:
            continue
        done[x] = False
        stack.append((x, True))
        for a in np.flatnonzero(policy[problem.see(x)] > 0):
            for m in problem.step(x, int(a)):
                if m.state is not None and m.state not in done:
                    stack.append((m.state, False))
    return out[::-1]
