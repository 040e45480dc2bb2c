"""MyAntFarm's chain of roles: diagnose, plan, assess (multi-agent incident response)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.generate.choose import decide
from rolltree.generate.hand import Hand
from rolltree.generate.roles import RoleAnswer
from rolltree.generate.search.steps import finished
from rolltree.generate.turns import play
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree

# Roles one after the other, each with what was said before it in sight, and an answer behind all of it (S153).


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


@dataclass(frozen=True, slots=True)
class MyAntFarm:
    """Three roles speak one after the other about the item, and the answer is written with what they said in sight.

    The study found 100 % of such answers actionable against 1.7 % of a single role's, with no variance at all, which
    suggests one scenario decoded greedily. What such a gap is due to is to be asked first: a single role that is asked
    for all that the three are asked for (`stages=""`, and the requirements in the prompt). Texts are the user's; only
    the abstract was read, and the order of three is the paper's. Its evidence has such a role answer as often as the
    chain's tokens allow, and vote; every further part that is asked for at once costs it a tenth of the chance of each.
    Where it costs nothing, the vote is ahead (`python -m rolltree_papers.myantfarm.study`).
    """

    card: ClassVar[Card] = Card(
        "myantfarm", "A chain of diagnoser, planner and assessor", "MyAntFarm", 2025,
        "100 % against 1.7 % actionable recommendations in 348 trials, at equal latency", ("generate",), "best_of_n",
        Evidence("quality of the chain", "the vote of a single role that is asked for the same, as many tokens",
                 least=0.02, check="rolltree_papers.myantfarm.study:chained", seeds=5),
        counter=Counter("budget/role/diagnoser"),
    )  # fmt: skip
    diagnose: str = "{prompt}"
    """What the diagnoser reads; {prompt} and {said} are filled in. "" = there is none."""
    plan: str = "{prompt}{said}"
    """What the planner reads."""
    assess: str = "{prompt}{said}"
    """What the assessor reads."""
    shown: str = "{said}"
    """How what they said stands in front of the answer."""
    answers: int = 2
    """Answers, each with a chain of its own, voted on."""
    stage_tokens: int = 64
    """Most tokens of a role's text."""

    def build(self) -> Parts:
        """A chain, and answers that are a group."""
        check_group("myantfarm", self.answers)
        asks = {"diagnoser": self.diagnose, "planner": self.plan, "assessor": self.assess}
        stages = tuple(Stage(role, ask) for role, ask in asks.items() if ask)
        return search_parts("myantfarm", Staged(stages, self.answers, self.shown, self.stage_tokens))
