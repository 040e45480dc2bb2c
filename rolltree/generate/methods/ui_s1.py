"""Rollouts simulated along a logged demonstration: the policy speaks, the demonstration steers (UI-S1)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from rolltree.control.hints import Expert
from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.needs import NeedsError
from rolltree.generate.outside import restore
from rolltree.generate.turns import hands_over, lacks_outcome, turns
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class SemiOnlineTurns:
    """`n` rollouts whose every turn is held against the demonstration's in the same state (UI-S1, arXiv 2509.11543).

    A turn that matches is played. One that does not is a leaf of its own; while patches are left the demonstration's
    turn stands beside it, untrained, and the rollout goes on below that. So the environment only ever sees what was
    logged, and the history is the policy's own words wherever they matched. Scores: `match` on each turn, `patch` on
    the demonstration's, `pay` as the step reward of a match. A leaf is verified at the demonstration's end; one that
    left it earlier has the share of its turns that matched as `progress` and an outcome of 0.
    """

    n: int = 8
    patches: int = 2
    """How often a rollout may be put back on the way; -1 = always."""
    pay: float = 1.0
    want: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset({"turns"})
    writes: ClassVar[frozenset[str]] = frozenset({"turn:match"})

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse tasks that nobody can demonstrate."""
        if not isinstance(task, Expert):
            raise NeedsError(
                f"semi-online rollouts follow a demonstration, but the task {task.name!r} has no expert to give one; "
                "choose another task, such as 'grid'"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All rollouts at once."""
        begun = sum(first.trainable for first in tree.children(tree.root))
        missing = int(min(self.n - begun, hand.budget.remaining("leaves")))
        async with asyncio.TaskGroup() as group:
            for _ in range(missing):
                group.create_task(self._follow(tree, hand))

    async def _follow(self, tree: Tree, hand: Hand) -> None:
        here, used, matched = tree.root, 0, 0
        while True:
            grown = await hand.extend(here, want=self.want)
            if not grown:
                return
            turn = grown[0]
            shown = await self._shown(hand, here, turn) if turn.status in ("open", "done") else None
            if shown is None:
                return
            match = hand.turn(turn) == shown
            matched += match
            turn.scores.update(match=float(match), step_reward=self.pay * match)
            if not match:
                self._leave(hand, turn, matched)
                patch = None if used == self.patches else await self._patch(hand, here, shown)
                if patch is None:
                    return
                turn, used = patch, used + 1
            answer = None if match and not hands_over(hand, turn) else await hand.act(turn)
            if answer is None or answer.status != "open" or turns(hand, answer) >= hand.max_turns:
                await self._end(hand, turn if answer is None else answer)
                return
            here = answer

    async def _shown(self, hand: Hand, here: Node, turn: Node) -> str | None:
        """The demonstration's turn in the state that `turn` answers; None where the state is lost."""
        held = await restore(hand, here)
        if held is None:
            if turn.status == "open":
                hand.close(turn, "budget", "the state it answers could not be restored")
            return None
        task: Any = hand.task
        return task.act(hand.item, held[0], Random(f"{hand.item.id}/{turns(hand, here)}"), 0.0)

    def _leave(self, hand: Hand, turn: Node, matched: int) -> None:
        if turn.status == "open":
            hand.close(turn, "stop", "not what the demonstration did")
        steps = turns(hand, turn) + 1
        turn.scores.update(reward=0.0, progress=matched / steps)
        turn.notes["answer"] = None
        hand.event("note", turn, "left the demonstration", matched=matched, turns=steps)

    async def _patch(self, hand: Hand, here: Node, shown: str) -> Node | None:
        patch = await hand.force(here, shown, role="hint", why="the demonstration's turn")
        if patch is not None:
            patch.scores["patch"] = 1.0
        return patch

    async def _end(self, hand: Hand, leaf: Node) -> None:
        if leaf.status == "open":
            hand.close(leaf, "depth", "the last turn that a rollout may have")
        if lacks_outcome(leaf):
            await hand.verify(leaf)
