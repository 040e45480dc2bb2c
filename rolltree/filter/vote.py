"""Majority votes as labels: what a prompt's own leaves agree on stands in for the unknown answer (TTRL, ETTRL, ECHO).

A vote knows nothing of the truth. Where the majority is wrong, agreement is rewarded all the same and training makes
the error certain; so the verifier's word is kept beside it, for measurement only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.filter.groups import drop, live_leaves
from rolltree.generate.judge.measured import Agreement, Weigh, answer_of, tally
from rolltree.generate.judge.protocol import Entry, at_once
from rolltree.tree import Node, Tree

NOBODY = np.random.default_rng(0)
"""Agreement draws nothing."""


class VoteError(RolltreeError, ValueError):
    """A vote with an unknown rule; names it and the known ones."""


@dataclass(frozen=True, slots=True)
class MajorityVote:
    """Replaces each leaf's reward by its agreement with the majority answer of the tree's leaves, 1 or 0.

    Answers are the leaves' `notes["answer"]`. The verifier's reward moves to `outcome` and `true_reward`, which no
    credit reads. `vote` on every leaf is its answer's share. Idempotent.
    """

    ties: Literal["first", "shared", "drop"] = "first"
    """Equal shares: the answer of the earlier leaf wins (released code), every tied answer is right, or no group."""
    silent: Literal["wrong", "vote", "drop"] = "wrong"
    """Leaves without an answer: do not vote and are wrong; vote for "no answer" (ECHO's released code, where it can
    win); or are not trained on."""
    weigh: Weigh = "leaf"
    """A vote per leaf; one vote shared out evenly at each fork, so that branches of one wrong stem do not outvote
    independent leaves; or each leaf's chance of being right, as seen in flight (ARRoL)."""
    least: float = 0.0
    """Share of the votes below which there is no majority, and the group is dropped."""

    def __post_init__(self) -> None:
        known = {"ties": ("first", "shared", "drop"), "silent": ("wrong", "vote", "drop"), "weigh": get_args(Weigh)}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise VoteError(f"majority vote: {name}={getattr(self, name)!r} is none of {', '.join(values)}")

    def __call__(self, tree: Tree, limit: int) -> None:
        """Label the live leaves of one tree; `limit` is not used."""
        leaves = live_leaves(tree)
        if self.silent == "drop":
            for leaf in leaves:
                if answer_of(leaf) is None:
                    leaf.usage = "dropped: no answer"
            leaves = [leaf for leaf in leaves if not leaf.usage]
        for leaf in leaves:
            leaf.scores["true_reward"] = leaf.scores.setdefault("outcome", leaf.scores["reward"])
        judge = Agreement(self.weigh, self.silent == "vote")
        said = at_once(judge(None, [_entries(tree, leaves)], NOBODY), judge.name)[0] if leaves else []
        shares = {answer_of(leaf): share for leaf, share in zip(leaves, said or (), strict=True) if not np.isnan(share)}
        if not shares:
            drop(tree, "no leaf has an answer to vote with")
            return
        top = max(shares.values())
        winners = [answer for answer, share in shares.items() if share >= top - 1e-12]
        if top < self.least or (len(winners) > 1 and self.ties == "drop"):
            drop(tree, f"no majority: {len(winners)} answers have {top:.2f} of the votes")
            return
        right = winners if self.ties == "shared" else winners[:1]
        for leaf in leaves:
            answer = answer_of(leaf)
            leaf.scores["vote"] = shares.get(answer, 0.0)
            leaf.scores["reward"] = float(answer in right and (answer is not None or self.silent == "vote"))
        voters = sum(self.silent == "vote" or answer_of(leaf) is not None for leaf in leaves)
        tree.event(
            "note", None, f"the majority says {' or '.join(map(repr, right))}", share=top, answers=len(shares),
            voters=voters, leaves=len(leaves),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OnlyVoted:
    """The first `trained` live leaves are trained on; the others only voted (TTRL)."""

    trained: int

    def __call__(self, tree: Tree, limit: int) -> None:
        """Drop what only voted; `limit` is not used."""
        for leaf in live_leaves(tree)[self.trained :]:
            leaf.usage = "dropped: it only voted"


@dataclass(frozen=True, slots=True)
class WeighedVote:
    """Says what a prompt's leaves agree on under another weight of votes, and changes no reward.

    The event, and parts of every voter's outcome, have whether the most frequent answer (`vote_frequent`) and the
    heaviest one (`vote_heavy`) are right; their means over a step are metrics of the run.
    """

    weigh: Weigh = "posterior"

    def __call__(self, tree: Tree, limit: int) -> None:
        """One event for the tree; `limit` is not used."""
        voters = [leaf for leaf in live_leaves(tree) if answer_of(leaf) is not None]
        if not voters:
            return
        right = {answer_of(leaf): leaf.scores.get("outcome", leaf.scores["reward"]) for leaf in voters}
        plain, heavy = (max(shares, key=lambda a: shares[a]) for shares in
                        (tally(tree, voters, "leaf"), tally(tree, voters, self.weigh)))  # fmt: skip
        for leaf in voters:
            leaf.scores |= {"vote_frequent": right[plain], "vote_heavy": right[heavy]}
        tree.event(
            "note", None, f"votes weighed by {self.weigh} say {heavy!r}", frequent=right[plain], heavy=right[heavy],
            voters=len(voters),
        )  # fmt: skip


def _entries(tree: Tree, leaves: Sequence[Node]) -> list[Entry]:
    return [Entry(tree, leaf) for leaf in leaves]
