"""Lookahead trees: greedy rows and forced forks until the group is full, then ordinary sampling (LATR)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rolltree.engine.protocol import Engine
from rolltree.generate.backfill import Backfill, backfill
from rolltree.generate.hand import Hand
from rolltree.generate.methods.latr_lookahead import Look, LookRow, LookRows
from rolltree.generate.signals import asked, features
from rolltree.generate.turns import play, proceed
from rolltree.task.protocol import Task
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class Lookahead:
    """LATR's generator (arXiv 2510.24302).

    It looks ahead until a share `full` of the places is taken by rows old enough to have been judged, or for `most`
    tokens; every row then goes on as the policy samples. Greedy and forced tokens do not follow the policy's
    distribution: their `sampling_logprob` is NaN, and the forest's metrics count such leaves. Rows look ahead within
    the first turn.
    """

    leaves: int = 8
    share: float = 1.0
    """Part of the leaves that come from the tree; the rest is sampled independently (the paper lets it fall)."""
    look: Look = field(default_factory=Look)
    full: float = 0.98
    most: int = 512
    """Tokens after which it hands over in any case."""
    chunk: int = 16
    """Greedy tokens written at once; it hands over at the end of one."""
    record: frozenset[str] = frozenset()
    """Extras to record for the credit, of sampled tokens."""
    fill: Backfill = "restart"
    """Where missing leaves come from; "copy" as released."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every sampled action."""
        return self.record

    @property
    def needs(self) -> frozenset[str]:
        """The alternatives, greedy decoding, and what is recorded."""
        return features(asked(self.record, {f"top:{self.look.top}"})) | {"greedy"}

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse ages that never drop a row on this task."""
        self.look.check(task.max_tokens)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Look ahead, hand over, restart for what is missing."""
        room = round(self.share * self.leaves)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.leaves - room):
                group.create_task(play(hand, tree.root, want=self.want))
            if room > 0:
                group.create_task(self._tree(hand, room))
        await backfill(hand, self.fill, self.leaves, want=self.want)

    async def _tree(self, hand: Hand, room: int) -> None:
        look = self.look.at(hand.limit)
        rows = LookRows(hand, look, room)
        rows.rows.append(LookRow(0, hand.tree.root, 0, None))
        position = 0
        while position < self.most:
            until = min(position + self.chunk, self.most)
            await rows.advance(position, until)
            position = until
            if self._over(rows, position):
                break
        alive = [row for row in rows.alive if row.leaf.parent is not None]
        why = f"{len(alive)} of {room} rows after {position} tokens, {rows.judged} tests at ages {look.ages}"
        hand.event(
            "select", None, why, rows=len(alive), refused=rows.refused, position=position, judged=rows.judged,
            ages=list(look.ages),
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            for row in alive:
                group.create_task(proceed(hand, row.leaf, want=self.want))

    def _over(self, rows: LookRows, position: int) -> bool:
        """Whether nobody writes greedily any more, or the rows are many and old enough."""
        alive = rows.alive
        if all(row.ended for row in alive):
            return True
        young = any(
            row.parent is not None and not row.ended and position - row.birth <= max(rows.look.ages, default=0)
            for row in alive
        )
        return len(alive) >= self.full * rows.room and not young
