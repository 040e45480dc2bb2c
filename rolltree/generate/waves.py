"""Attempts, digests, a tournament of votes, and a fresh wave of attempts with the winners' digests in sight (RTV, PDR).

Nothing of an attempt goes on but the text of its digest: the second wave starts where the first did. No verdict of the
verifier enters a digest; verdicts are recorded on the leaves for measurement alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rolltree.control.brief import Brief, Slot, brief
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.protocol import Entry, Judge, Recorded
from rolltree.generate.judge.tournament import Bracket, tournament
from rolltree.generate.judge.votes import Votes
from rolltree.generate.roles import About
from rolltree.metrics.reward import FIRST_WAVE, LAST_WAVE
from rolltree.tree import Node, Tree

AGAIN = "again"
"""The role in which a fresh wave answers."""


@dataclass(frozen=True, slots=True)
class Digests:
    """What is made of an attempt before it is judged or shown: what a role writes when asked, or the attempt itself."""

    ask: str = ""
    """Asks for a digest: {prompt} and {text} are filled in; "" = the attempt stands for itself."""
    stop: tuple[str, ...] = ()
    max_tokens: int = 64
    shown: str = "{digest}"
    """How a digest stands in the prompt of the next wave."""
    before: bool = True
    """In front of the prompt, or after it."""
    role: str = "digest"

    async def of(self, hand: Hand, leaves: Sequence[Node]) -> list[Entry]:
        """A digest of each attempt, where one could be made."""
        if not self.ask:
            return [Entry(hand.tree, leaf, hand.text(leaf)) for leaf in leaves]
        prompt = hand.item.prompt
        said = await asyncio.gather(*(
            hand.ask(self.role, brief(self.ask.format(prompt=prompt, text=hand.text(leaf))), about=[leaf],
                     stop=self.stop, max_tokens=self.max_tokens)
            for leaf in leaves
        ))  # fmt: skip
        made = [Entry(hand.tree, leaf, s[0].text) for leaf, s in zip(leaves, said, strict=True) if s]
        if len(made) < len(leaves):
            hand.event("note", None, "attempts without a digest take no part", attempts=len(leaves), digests=len(made))
        return made

    def briefed(self, entries: Sequence[Entry]) -> Brief:
        """Digests as slots of the next wave's prompt."""
        return Brief(tuple(
            Slot(f"attempt {i}", self.shown.format(digest=e.text), (About(e.tree, e.node).name,), before=self.before)
            for i, e in enumerate(entries, 1)
        ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waves(Recorded):
    """RTV and PDR (arXiv 2604.16529): `n` attempts, a tournament down to `keep`, `n` fresh attempts with these digests
    in sight, and a tournament down to one; `waves=1` is the tournament alone.

    With n = keep = 1 it is SAGE: an attempt, a plan made of it, and a fresh attempt with the plan (arXiv 2511.05931).
    """

    n: int = 16
    group: int = 2
    keep: int = 2
    waves: int = 2
    judge: Judge = field(default_factory=lambda: Votes(Likelihood(), 8, "shuffled"))
    digests: Digests = field(default_factory=Digests)
    show: Literal["winners", "losers", "none"] = "winners"
    """Which attempts the next wave sees; the others are controls: those that lost, or none."""
    record: frozenset[str] = frozenset()

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return self.record | self.judge.want

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Wave after wave; the answer of the last tournament's winner is the tree's."""
        here, first = hand, True
        for wave in range(self.waves):
            await Independent(self.n, want=self.want).grow_tree(here.tree, here)
            leaves = [leaf for leaf in here.tree.leaves() if leaf.status == "done" and leaf.parent is not None]
            last = wave == self.waves - 1
            entries = await self.digests.of(here, leaves)
            if not entries:
                hand.event("note", None, f"wave {wave + 1} has no attempt to choose")
                return
            _note_solved(hand, leaves, first=first)
            bracket = await self._played(here, entries, 1 if last else self.keep, wave)
            if last:
                winner = entries[bracket.survivors[0]].node
                winner.scores["chosen"] = 1.0
                tree.notes["answer"] = winner.notes.get("answer")
                hand.event("note", None, f"the tournament chose {winner.notes.get('answer')!r}",
                           node=winner.id, tree=here.tree.id, chance=bracket.by_chance)  # fmt: skip
                return
            shown = self._shown(entries, bracket)
            about = [About(e.tree, e.node) for e in shown]
            here, first = here.side(AGAIN, self.digests.briefed(shown), about=about, item=hand.item), False

    async def _played(self, hand: Hand, entries: Sequence[Entry], stop_at: int, wave: int) -> Bracket:
        rng = hand.rng.child("tournament", wave).generator()
        return await tournament(hand, self.judge, entries, rng, group=self.group, stop_at=stop_at)

    def _shown(self, entries: Sequence[Entry], bracket: Bracket) -> list[Entry]:
        if self.show == "none":
            return []
        if self.show == "winners":
            return [entries[i] for i in bracket.survivors]
        out = [m for match in bracket.rounds[0] for m in match.members if m != match.winner] if bracket.rounds else []
        return [entries[i] for i in out[: self.keep]]


def _note_solved(hand: Hand, leaves: Sequence[Node], *, first: bool) -> None:
    """How much of a wave the verifier calls right, for people to read: nothing in a run asks for it."""
    known = [leaf.scores["reward"] for leaf in leaves if "reward" in leaf.scores]
    if known:
        name = FIRST_WAVE if first else LAST_WAVE
        hand.tree.root.scores[name] = sum(known) / len(known)
