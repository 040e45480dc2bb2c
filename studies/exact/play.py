"""An exact problem as a task with an environment, so that real strategies sample it through a real hand.

Only problems whose every action is a turn of its own: the environment answers with the letter of the next row of the
policy's table, which is all that the policy looks at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.protocol import Item, Reply, Split, Verdict
from rolltree.tree import Tree
from studies.exact.problem import Problem, State

ROWS, ACTIONS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Played:
    """A problem played turn by turn. The environment's chances are drawn anew at every call, never by item."""

    problem: Problem
    chances: Random
    name: str = "played"
    level: int = 0
    max_tokens: int = 64
    max_turns: int = 64
    stop: tuple[str, ...] = field(default=tuple(ACTIONS))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The same start again and again."""
        i = 0
        while True:
            yield Item(f"{split}-{seed}-{i}", ROWS[self.problem.see(self.problem.start)], answer="")
            i += 1

    def start(self, item: Item) -> tuple[Any, str]:
        """The first state, with nothing earned."""
        return (self.problem.start, 0.0), item.prompt

    async def step(self, item: Item, state: tuple[State, float], text: str) -> Reply:
        """One move; "." ends the episode. Any outcome but the one listed first is a call that failed."""
        here, earned = state
        moves = self.problem.step(here, ACTIONS.index(text))
        move = self.chances.choices(moves, [m.p for m in moves])[0]
        failed, now = move is not moves[0], (move.state, earned + move.reward)
        if move.state is None:
            return Reply(".", now, done=True, failed=failed)
        row = ROWS[self.problem.see(move.state)]
        return Reply(row, now, state_key=row, failed=failed)

    async def verify(self, item: Item, state: tuple[State, float], text: str) -> Verdict:
        """What was earned."""
        return Verdict(state[1], answer=text[-2:-1])


def grown(problem: Problem, strategy: TreeStrategy, seed: int, trees: int) -> list[Tree]:
    """Trees that a strategy grows on a problem, with the row of the policy's table behind each action."""
    rows, actions = problem.policy.shape
    codec = Letters(ROWS[:rows] + ACTIONS[:actions] + ".")

    def policy(prefix: tuple[int, ...]) -> list[float]:
        return [0.0] * rows + problem.policy[prefix[-1]].tolist() + [0.0]

    task = Played(problem, Random(seed), stop=tuple(ACTIONS[:actions]))
    engine = TabularEngine(policy, codec, seed=seed)
    forest = asyncio.run(grow(strategy, engine, task, islice(task.items("train"), trees), seed=seed))
    for tree in forest:
        for node in tree:
            if node.trainable and node.parent is not None:
                node.notes["row"] = tree[node.parent].actions[-1:].astype(float)
                node.actions = node.actions - rows
    return list(forest)
