"""Roles one after the other, each with what was said before it in sight, and an answer behind all of it (S153)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rolltree.control.brief import brief
from rolltree.generate.decide import decide
from rolltree.generate.hand import Hand
from rolltree.generate.roles import RoleAnswer
from rolltree.generate.search.steps import finished
from rolltree.generate.turns import play
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Stage:
    """A role and what it is asked: {prompt}, and {said}, all that the roles before it said."""

    role: str
    ask: str


@dataclass(frozen=True, slots=True)
class Staged:
    """`answers` answers, each behind a chain of roles of its own. What the roles said is a further prompt: the
    answer is judged without it, and it is never trained on.
    """

    stages: Sequence[Stage] = ()
    answers: int = 1
    shown: str = "{said}"
    """How it stands there."""
    stage_tokens: int = 64
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Stage by stage for all chains, then the answers side by side, then a vote."""
        chains: list[list[RoleAnswer] | None] = [[] for _ in range(self.answers)]
        for stage in self.stages:
            chains = list(await asyncio.gather(*(self._said(hand, stage, chain) for chain in chains)))
        starts: list[Node] = []
        for chain in chains:
            # In order, so that who has spoken first does not matter.
            start = None if chain is None else await self._shown(hand, chain)
            starts += [] if start is None else [start]
        async with asyncio.TaskGroup() as group:
            for start in starts:
                group.create_task(play(hand, start))
        if len(starts) < self.answers:
            hand.event("note", None, "answers are missing where a role said nothing", answers=len(starts))
        decide(hand, finished(tree), "vote")

    async def _said(self, hand: Hand, stage: Stage, chain: list[RoleAnswer] | None) -> list[RoleAnswer] | None:
        """A chain with the next role's words; None where one has said nothing."""
        if chain is None:
            return None
        text = stage.ask.format(prompt=hand.item.prompt, said="".join(a.text for a in chain))
        about = [hand.tree.root, *chain]
        written = await hand.ask(stage.role, brief(text), about=about, max_tokens=self.stage_tokens)
        return [*chain, written[0]] if written else None

    async def _shown(self, hand: Hand, chain: Sequence[RoleAnswer]) -> Node | None:
        """Where the answer begins; None where the budget has no leaf left."""
        text = self.shown.format(said="".join(a.text for a in chain)) if chain else ""
        if not text:
            return hand.tree.root
        return await hand.force(hand.tree.root, text, role="prompt", birth="boundary", why="what the roles said")
