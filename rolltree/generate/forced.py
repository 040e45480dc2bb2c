"""Rollouts that are given: turns that somebody wrote, forced below a prompt, answered and judged like sampled ones.

Forced actions train, carry the policy's log-prob of today and are marked. Where the log-probs that they were sampled
with are known they stand beside it, so a correction can weigh them; where not, such an action's weight is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from rolltree.control.hints import Expert, solver
from rolltree.control.order import ControlError, Written
from rolltree.engine.protocol import Engine
from rolltree.generate import outside
from rolltree.generate.hand import Hand
from rolltree.generate.recorder import latest_rollout
from rolltree.generate.strategy import NeedsError
from rolltree.generate.turns import lacks_outcome, play, settle
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree

PLACE = "given"
"""Key in a node's notes: which of the given rollouts begins here."""


async def write_turns(hand: Hand, given: Written, leaf: Node | None = None, *, place: int = 0, why: str = "") -> None:
    """Write a rollout below the prompt, or go on behind `leaf`, as far as the budget allows.

    The environment answers each turn anew. What it says may differ from what was said when the turns were written; they
    are then judged by what they lead to here. A text longer than the limit is cut there. An answer that no stop string
    ends is ended as the policy ends one.
    """
    here = hand.tree.root if leaf is None else leaf
    written = [n for n in latest_rollout(hand.tree.path(here)) if n.role == "policy"]
    if here.status == "paused":
        hand.tree.resume(here, "continued", at=hand.setting.clock())
    if written and here is written[-1] and here.status == "open":
        here = await _handed_over(hand, here, given.turns[len(written) - 1])
    for number in range(len(written), len(given.turns)):
        if here.status != "open" and here is not hand.tree.root:
            break
        node = await _write(hand, here, given, number, place, why)
        if node is None:
            return
        here = await _handed_over(hand, node, given.turns[number])
    if here.status == "open" and here is not hand.tree.root:
        hand.close(here, "eos" if _ends_itself(hand, here) else "stop", "what was given ends here")
    if lacks_outcome(here):
        await hand.verify(here)


@dataclass(frozen=True, slots=True)
class Given:
    """A strategy that samples nothing: its rollouts are there."""

    rollouts: tuple[Written, ...]
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """One after the other."""
        for _ in range(self.samples):
            await self.grow_sample(hand, None)

    @property
    def samples(self) -> int:
        """As of `SampleStrategy`."""
        return len(self.rollouts)

    async def grow_sample(self, hand: Hand, leaf: Node | None) -> None:
        """The next that was not begun, or the rest of one."""
        if leaf is not None:
            place = int(hand.tree.path(leaf)[1].notes[PLACE])
            await write_turns(hand, self.rollouts[place], leaf)
            return
        begun = {n.notes.get(PLACE) for n in hand.tree.children(hand.tree.root) if n.status != "pruned"}
        place = next((i for i in range(len(self.rollouts)) if i not in begun), None)
        if place is not None:
            await write_turns(hand, self.rollouts[place], place=place, why="written before, or elsewhere")

    def sampled(self, leaf: Node) -> bool:
        """Done and verified."""
        return leaf.status == "done" and leaf.is_leaf and not lacks_outcome(leaf)


async def _write(hand: Hand, here: Node, given: Written, number: int, place: int, why: str) -> Node | None:
    """One turn; the node stands, and says which rollout it is of, before anything is awaited."""
    text, own = given.turns[number], sum(len(n) for n in hand.tree.path(here) if n.role == "policy")
    ids = list(hand.codec.encode(text))
    if hand.codec.eos_id >= 0 and not any(text.endswith(stop) for stop in hand.task.stop):
        ids = [*ids, hand.codec.eos_id]
    ids = ids[: max(hand.limit - own, 0)]
    if not ids:
        hand.close(here, "length", "what was given is longer than the limit")
        return None
    node = outside.place(hand, here, np.asarray(ids, np.int32), "policy", "forced")
    if node is None:
        return None
    if number == 0:
        node.notes[PLACE] = place
    hand.event("force", node, why, tokens=len(ids), role="policy")
    await outside.score_forced(hand, node)
    if given.sampled and len(given.sampled[number]) == len(node) and node.logp is not None:
        node.sampling_logprob = np.asarray(given.sampled[number], np.float32)
    return node


async def _handed_over(hand: Hand, node: Node, text: str) -> Node:
    """Behind the environment's answer, where the turn asks for one."""
    stop = next((stop for stop in hand.task.stop if text.endswith(stop)), None)
    if node.status != "open" or not hand.interactive or stop is None:
        return node
    node.finish, node.notes["stopped_by"] = "stop", stop
    return await settle(hand, node, verify=False)


def _ends_itself(hand: Hand, node: Node) -> bool:
    return len(node) > 0 and int(node.actions[-1]) == hand.codec.eos_id


# Answers that others wrote beside the policy's own: what imitation and online preference learn from.
#
# A demonstration stands in the tree as the policy's own actions chosen by a method: it trains, is marked forced,
# carries the policy's log-prob and has no sampling probability. The task's expert writes it, well or with mistakes.


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
