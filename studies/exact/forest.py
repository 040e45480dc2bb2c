"""Forests sampled from an exact problem, carrying everything a credit may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rolltree.filter.versus import Versus
from rolltree.tree import Node, Top, Tree
from rolltree.tree.table import Floats
from studies.exact.problem import Problem, Solved, State

Forks = Literal["flat", "even", "uneven"]
"""All leaves from the root; half as many from the root and two below each first action; or, below a first action of 0,
four continuations and below any other one: as many forks as the policy's own choice decides."""


@dataclass(slots=True)
class _Turn:
    """Actions of one turn so far."""

    actions: list[int] = field(default_factory=list[int])
    states: list[State] = field(default_factory=list[State])

    def tell(
        self, problem: Problem, solved: Solved, policy: Floats, critic_error: dict[State, float]
    ) -> dict[str, Any]:
        rows = [problem.see(x) for x in self.states]
        pi = policy[rows]
        p = pi[np.arange(len(rows)), self.actions]
        # The reference is uniform over the actions that exist.
        reference = -np.log((pi > 0).sum(axis=1))
        value = [solved.value[x] + critic_error.get(x, 0.0) for x in self.states]
        spans: dict[str, tuple[int, int]] = {}
        for k, x in enumerate(self.states):
            spans[problem.phase(x)] = (k, k + 1)
        known = {problem.phase(x): v for x, v in zip(self.states, value, strict=True)}
        notes = {
            "row": np.array(rows, np.float64), "value": np.array(value), "spans": spans, "reference": reference,
            "energy": 1 - 2 * p + (pi**2).sum(axis=1),
        }  # fmt: skip
        order = np.argsort(-pi, axis=1, kind="stable")
        top = Top(
            order.astype(np.int32), np.log(np.maximum(np.take_along_axis(pi, order, 1), 1e-30)).astype(np.float32)
        )
        scores = {
            "match": 1.0, "switch": float("subgoal" in spans), "value_low": known.get("action", 0.0),
            "value_high": known.get("subgoal", 0.0), "value_term": known.get("switch", 0.0),
        }  # fmt: skip
        logs = np.log(np.where(pi > 0, pi, 1.0))
        return {
            "actions": np.array(self.actions, np.int32), "status": "done", "notes": notes, "scores": scores,
            "top": top, "logp": np.log(p).astype(np.float32), "entropy": -(pi * logs).sum(axis=1).astype(np.float32),
        }  # fmt: skip


def sample(
    problem: Problem, solved: Solved, rng: np.random.Generator, *, trees: int, group: int, forks: Forks = "flat",
    noise: float = 0.0, critic: float = 0.0,
) -> list[Tree]:  # fmt: skip
    """Trees of one prompt each with about `group` leaves ("uneven" varies with the actions drawn).

    `noise` is the standard deviation of an error added to each leaf's outcome, `critic` that of a fixed error of the
    critic's value per state. The outcome is the sum of all rewards of a path. Runs that end where a tree forks are
    plans (level 1), every turn matches its demonstration, and an exact judge has compared the leaves.
    """
    policy = problem.policy
    cumulative = policy.cumsum(axis=1)
    errors = {x: float(e) for x, e in zip(solved.value, rng.normal(0, critic, len(solved.value)), strict=True)}
    out: list[Tree] = []
    judged = Versus()
    for i in range(trees):
        tree = Tree(f"{problem.name}{i}", [0], item=problem.name)
        tree[0].state_key = str(problem.see(problem.start))
        tree[0].scores.update(
            prior=min(max(solved.objective + errors[problem.start], 0.0), 1.0),
            greedy_reward=_greedy(problem, policy, rng), effort=1.0,
        )  # fmt: skip
        roots = group if forks == "flat" else max(group // 2, 1)
        todo: list[tuple[Node, State, _Turn, float, bool]] = [
            (tree[0], problem.start, _Turn(), 0.0, forks != "flat") for _ in range(roots)
        ]
        while todo:
            above, x, turn, earned, may_fork = todo.pop()
            ended = False
            while not ended:
                row = problem.see(x)
                a = min(int(np.searchsorted(cumulative[row], rng.random(), side="right")), policy.shape[1] - 1)
                moves = problem.step(x, a)
                move = moves[0] if len(moves) == 1 else moves[rng.choice(len(moves), p=[m.p for m in moves])]
                turn.actions.append(a)
                turn.states.append(x)
                earned += move.reward
                ended = move.state is None
                if not (ended or may_fork or problem.turn_ends(x)):
                    x = move.state
                    continue
                told = turn.tell(problem, solved, policy, errors)
                above, turn = tree.extend(above, told.pop("actions"), level=int(may_fork), **told), _Turn()
                if ended:
                    above.scores["task_reward"] = earned
                    above.scores["reward"] = earned + (float(rng.normal(0, noise)) if noise else 0.0)
                    above.notes["answer"] = str(a)
                    break
                next_row = str(problem.see(move.state))
                if problem.turn_ends(x):
                    above = tree.extend(above, [0], role="env", status="done", state_key=next_row)
                else:
                    above.state_key = next_row
                x = move.state
                if may_fork:
                    copies = 2 if forks == "even" else 4 if a == 0 else 1
                    todo.extend((above, x, _Turn(), earned, False) for _ in range(copies))
                    break
        judged(tree, 0)
        out.append(tree)
    return out


def _greedy(problem: Problem, policy: Floats, rng: np.random.Generator) -> float:
    """What one rollout of the likeliest actions earns; the environment's own chances are drawn."""
    x: State | None = problem.start
    earned = 0.0
    while x is not None:
        moves = problem.step(x, int(policy[problem.see(x)].argmax()))
        move = moves[0] if len(moves) == 1 else moves[rng.choice(len(moves), p=[m.p for m in moves])]
        earned += move.reward
        x = move.state
    return earned
