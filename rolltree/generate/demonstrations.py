"""Answers that others wrote beside the policy's own: what imitation and online preference learn from.

A demonstration stands in the tree as the policy's own actions chosen by a method: it trains, is marked forced, carries
the policy's log-prob and has no sampling probability. The task's expert writes it, well or with mistakes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from rolltree.control.hints import Expert, solver
from rolltree.control.order import ControlError, Written
from rolltree.engine.protocol import Engine
from rolltree.generate.given import write_turns
from rolltree.generate.hand import Hand
from rolltree.generate.needs import NeedsError
from rolltree.generate.turns import play
from rolltree.task.protocol import Task
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """`shown` right answers, `flawed` ones with mistakes, and `rollouts` of the policy, all verified.

    A corpus is such a mixture: the text as it was found is the flawed answer, the text as a rewriter mends it the right
    one. An item's answers are the same in every epoch.
    """

    gives_written: ClassVar[bool] = True
    shown: int = 1
    flawed: int = 0
    noise: float = 0.3
    """How often the expert errs in a flawed answer."""
    rollouts: int = 0
    want: frozenset[str] = frozenset()
    """Extras to record of the rollouts for the credit."""
    needs: frozenset[str] = frozenset()

    @property
    def leaves(self) -> int:
        """How many leaves it makes of a prompt."""
        return self.shown + self.flawed + self.rollouts

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse tasks without written answers."""
        if task.max_turns:
            raise NeedsError(
                f"demonstrations are whole answers, but those of the task {task.name!r} are dialogues with its "
                "environment; choose a task without one"
            )
        solve = solver(task)
        assert solve is not None
        try:
            solve(next(task.items("train")))
        except ControlError as error:
            raise NeedsError(str(error)) from None
        if self.flawed and not isinstance(task, Expert):
            raise NeedsError(
                f"flawed demonstrations are written by a task's expert, which {task.name!r} lacks; choose another "
                "task, or flawed=0"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """The given answers first, then all rollouts at once."""
        for text in self.texts(hand):
            await write_turns(hand, Written((text,)), why="an answer by the task's expert")
        async with asyncio.TaskGroup() as group:
            for _ in range(int(min(self.rollouts, hand.budget.remaining("leaves")))):
                group.create_task(play(hand, tree.root, want=self.want))

    def texts(self, hand: Hand) -> Sequence[str]:
        """The answers given for this prompt."""
        task, item = hand.task, hand.item
        solve = solver(task)
        assert solve is not None
        right = [solve(item)] * self.shown
        if not isinstance(task, Expert):
            return right
        return right + [task.act(item, None, Random(f"{item.id}/{i}"), self.noise) for i in range(self.flawed)]
