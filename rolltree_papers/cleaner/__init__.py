"""CLEANER: self-purified trajectories (arXiv 2601.15141)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import ClassVar

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.generate.forkall import came_from
from rolltree.generate.hand import Hand
from rolltree.generate.signals import features
from rolltree.generate.turns import hands_over, lacks_outcome, settle, stretch
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Node, Tree

# Repair a failed call with the error in sight, then strike the error from the record (CLEANER, arXiv 2601.15141).

A_CALL = r"\A(?!=)[\s\S]+"
"""The nano tasks' calls: whole turns, unless they begin with "=", which answers."""


@dataclass(frozen=True, slots=True)
class Repairing:
    """CLEANER's agent loop: n rollouts whose failed calls are replaced by the policy's own corrections.

    A call that fails is answered with its error as usual, and the policy writes another turn. Where the two calls are
    alike the new one replaces the old behind the old reasoning, else the whole turn is replaced; the error exchange is
    left out, and the new call is made from there. What was spliced was sampled in another context: its log-probs are
    scored anew and it has no `sampling_logprob`, so no importance correction applies. A turn without a call stays,
    error and all, and ends repairing on its path, as do `retries` failures in a row.
    """

    n: int = 8
    retries: int = 3
    alike: float = 0.5
    """Least likeness (matching characters, 0 to 1) of two calls for the old reasoning to stay."""
    chance: float = 1.0
    """Share of rollouts that are repaired at all (1 for the paper's 4B model, 0.7 for its 7B)."""
    call: str = A_CALL
    """Regular expression that finds the call in a turn; what stands before it is reasoning."""
    errors: str = ""
    """Regular expression of the errors that are repaired; all failed calls unless given."""
    rewind: bool = False
    """Make the new call in the state before the failed one; else in the state that the failure left, which matters for
    tools that fail by themselves: a deterministic one would fail the same way again."""
    want: frozenset[str] = frozenset()
    """Extras to record for the credit: "entropy" only, as alternatives cannot be scored again."""

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, scoring, and an environment that answers."""
        return features(self.want) | {"turns", "score"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All rollouts at once."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.n):
                group.create_task(self._rollout(tree, hand, number))

    async def _rollout(self, tree: Tree, hand: Hand, number: int) -> None:
        active = hand.rng.child("repair", number).uniform() < self.chance
        here = tree.root
        while True:
            grown = await stretch(hand, here, want=self.want)
            if not grown:
                return
            here = grown[0]
            if active and self._failed(hand, here):
                here, active = await self._repair(tree, hand, here)
            if here.status != "open":
                return

    def _failed(self, hand: Hand, node: Node) -> bool:
        if node.role != "env" or node.status != "open" or not node.notes.get("failed"):
            return False
        return re.search(self.errors, hand.codec.decode(node.actions)) is not None

    async def _repair(self, tree: Tree, hand: Hand, failed: Node) -> tuple[Node, bool]:
        """Where the path goes on from a failed call, and whether it may be repaired again."""
        for attempt in range(self.retries):
            made = await hand.extend(failed, want=self.want, why="the error is in sight")
            if not made:
                return await settle(hand, failed), False
            fresh = made[0]
            if not hands_over(hand, fresh) or re.search(self.call, hand.turn(fresh)) is None:
                return await settle(hand, fresh), False
            spliced = await self._splice(tree, hand, failed, fresh, attempt)
            here = await settle(hand, spliced) if spliced.status == "open" else spliced
            if lacks_outcome(here):
                await hand.verify(here)
            if not self._failed(hand, here):
                return here, True
            failed = here
        return failed, False

    async def _splice(self, tree: Tree, hand: Hand, failed: Node, fresh: Node, attempt: int) -> Node:
        """The path up to the failed call with the new call in its place."""
        old, origin = tree[failed.parent or 0], came_from(tree, failed)
        texts = hand.turn(old), hand.turn(fresh)
        found = [re.search(self.call, text) for text in texts]
        calls = [text if match is None else match.group() for match, text in zip(found, texts, strict=True)]
        ratio = SequenceMatcher(None, calls[0], calls[1], autojunk=False).ratio()
        starts = [0 if match is None else match.start() for match in found]
        splits = [_split(hand, *pair) for pair in zip((old, fresh), starts, strict=True)]
        keep = ratio >= self.alike and None not in splits
        at = splits if keep else [0, 0]
        # Positions on the path: the failed turn begins where its origin ends, the new one where the error does.
        head = hand.place(old, len(tree.prefix(origin)) + (at[0] or 0))
        tail = hand.place(fresh, len(tree.prefix(failed)) + (at[1] or 0))
        path = tree.path(fresh)
        ids = [n.id for n in path]
        start, replacement = path[ids.index(head.id) + 1], path[ids.index(tail.id) + 1]
        part = "call" if keep else "turn"
        spliced = hand.splice(fresh, start, replacement, why=f"the repaired {part} replaces the failed one")
        if not self.rewind:
            spliced.state = failed.state
        hand.prune(fresh, why="repaired: it goes on without the error")
        await self._score(hand, spliced, replacement, ratio=ratio, attempt=attempt)
        return spliced

    async def _score(self, hand: Hand, spliced: Node, sampled: Node, *, ratio: float, attempt: int) -> None:
        scored = await hand.score(spliced, want=self.want & {"entropy"})
        if scored is None:
            return
        spliced.logp, spliced.entropy = scored.logp, scored.entropy
        spliced.version = np.full(len(spliced), scored.version, np.int32)
        shift = float(np.abs(scored.logp - sampled.logp).max()) if sampled.logp is not None and len(sampled) else 0.0
        hand.event("note", spliced, "log-probs without the error in sight", shift=shift, alike=ratio, attempt=attempt)


def _split(hand: Hand, node: Node, characters: int) -> int | None:
    """How many tokens of a turn make exactly its first characters; None where a token straddles the border."""
    actions = hand.turn_actions(node)
    low, high = 0, len(actions)
    while low < high:
        middle = (low + high) // 2
        if len(hand.codec.decode(actions[:middle])) < characters:
            low = middle + 1
        else:
            high = middle
    return low if len(hand.codec.decode(actions[:low])) == characters else None


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Failed tool calls are replaced by the policy's own corrections before the trajectory is trained on.

    Repaired calls were sampled with the error in sight and are trained without it, at ratio 1: off-policy, on purpose,
    and without importance correction (the `shift` of each splice is on record). How to recover from an error is not
    taught, so a baseline must get as many tool calls, and evaluation without repairs measures another thing: held-out
    items are answered both ways, the paper's with repairs as `repaired/eval/pass@1`. The advice after two failures in a
    row is left out.
    """

    card: ClassVar[Card] = Card(
        "cleaner", "Self-purified trajectories", "2601.15141", 2026,
        "AIME 24/25 +6, GPQA +3, LiveCodeBench +5 points; the baseline's quality in a third of the steps",
        ("generate", "filter"), "dapo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:noisy", seeds=6),
        counter=Counter("rollout/births/splice"),
    )  # fmt: skip
    group: int = 8
    retries: int = 3
    """How often a failed call is tried again."""
    alike: float = 0.5
    """Least likeness (matching characters, 0 to 1) of two calls for the old reasoning to stay."""
    chance: float = 1.0
    """Share of rollouts that are repaired at all (1 for the paper's 4B model, 0.7 for its 7B)."""
    call: str = A_CALL
    """Regular expression that finds the call in a turn; what stands before it is reasoning."""
    errors: str = ""
    """Regular expression of the errors that are repaired; all failed calls unless given."""
    rewind: bool = False
    """Make the new call in the state before the failed one; else in the state that the failure left, which
    matters for tools that fail by themselves: a deterministic one would fail the same way again."""
    evaluate_repaired: bool = True
    """Answer held-out items with repairs too."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual: float = 10.0

    def build(self) -> Parts:
        """Repaired rollouts, group credit, asymmetric dual clip against the proximal policy."""
        check_group("cleaner", self.group)
        repairing = Repairing(
            self.group, self.retries, self.alike, self.chance, self.call, self.errors, self.rewind
        )  # fmt: skip
        return Parts(
            "cleaner", repairing, load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high, dual=self.dual),
            averaging="token",
            evaluations={"repaired": replace(repairing, chance=1.0)} if self.evaluate_repaired else {},
        )  # fmt: skip
