"""SCOPE: failed rollouts corrected step by step instead of thrown away (the card's name; no paper id was readable)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, ReadsJudge, entries
from rolltree.generate.search.steps import finished, judge_of
from rolltree.generate.setting import HandError
from rolltree.generate.signals import features
from rolltree.generate.step_labels import step_ends
from rolltree.generate.strategy import refuse_environment
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, RecipeError, check_group
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree
from rolltree.tree.node import join_actions
from rolltree.tree.steps import solved, steps_of

# Failed rollouts repaired from their first bad step on, and put back into their group (SCOPE).
#
# A step judge finds the first step below τ; a corrector goes on from the step before; where the verifier accepts what
# it wrote, that becomes the policy's own forced run behind the policy's own prefix, and takes the failed rollout's
# place.

CORRECTOR = "corrector"
"""The role that repairs: an engine of its own, or the policy once more."""


@dataclass(frozen=True, slots=True)
class Repaired(ReadsJudge):
    """Plays `n` rollouts and repairs at most the share `most` of the failed ones, each by up to `tries` corrections.

    A rollout whose first step is bad already has nothing to keep, and one without a bad step nothing to repair.
    """

    n: int = 8
    judge: Judge = field(default_factory=lambda: Confidence("step"))
    threshold: float = 0.5
    """τ: a step graded below it is the error."""
    most: float = 1.0
    tries: int = 1
    delimiter: str = ","

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, and scores of what was not sampled."""
        return features(self.want) | {"score"}

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: steps are pieces of one answer."""
        refuse_environment(task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Play, then repair side by side."""
        theirs, ours = hand.as_actor(CORRECTOR).codec, hand.codec
        if theirs is not ours and theirs.vocab_size != ours.vocab_size:
            raise HandError(
                f"the corrector has {theirs.vocab_size} tokens and the policy {ours.vocab_size}, and what it writes "
                "becomes the policy's; give a corrector with the policy's tokens"
            )
        await Independent(self.n, want=self.want).grow_tree(tree, hand)
        failed = [leaf for leaf in finished(tree) if not solved(leaf)]
        for leaf in failed:
            for end in step_ends(hand, leaf, self.delimiter):
                hand.place(leaf, end)
        chosen = failed[: int(np.ceil(self.most * len(failed)))]
        kept = await asyncio.gather(*(self._repair(hand, leaf) for leaf in chosen))
        hand.event("note", None, "failed rollouts repaired", failed=len(failed), repaired=sum(kept))

    async def _repair(self, hand: Hand, leaf: Node) -> bool:
        steps = steps_of(hand.tree, leaf)
        error = await self._error(hand, steps)
        if error is None or error == 0:
            return False
        last = steps[error - 1]
        side = hand.as_actor(CORRECTOR)
        for _ in range(self.tries):
            end = await play(side, last, want=self.want)
            if end is last or end.status != "done":
                return False
            right = solved(end)
            path = [n.id for n in hand.tree.path(end)]
            tail = hand.tree.path(end)[path.index(last.id) + 1 :]
            actions = join_actions([n.actions for n in tail])
            if right:
                return await self._replace(hand, leaf, last, tail[0], actions)
            hand.prune(tail[0], why="the correction is wrong too")
        return False

    async def _replace(self, hand: Hand, leaf: Node, last: Node, drafted: Node, actions: np.ndarray) -> bool:
        """What the corrector wrote as a forced run of the policy, instead of the failed rollout."""
        forced = await hand.force(last, actions, role="policy", why="the correction behind the policy's own steps")
        if forced is None or forced.status != "open":
            return False
        hand.prune(drafted, why="it stands as the policy's own now")
        hand.close(forced, "stop", "the correction's end")
        await hand.verify(forced)
        if not solved(forced):
            return False
        forced.notes["operator"] = "repair"
        path = hand.tree.path(leaf)
        at = [n.id for n in path].index(last.id)
        others = [n for n in hand.tree.children(path[at + 1]) if len(path) > at + 2 and n is not path[at + 2]]
        if not others:
            hand.prune(path[at + 1], why="repaired: the correction takes its place")
        return True

    async def _error(self, hand: Hand, steps: list[Node]) -> int | None:
        """The first step below the threshold; None = there is none, or the judge said nothing."""
        said = await hand.judge(self.judge, [[entry] for entry in entries(hand, steps)], about="steps")
        return next((i for i, o in enumerate(said) if o is not None and o[0] < self.threshold), None)


@dataclass(frozen=True, slots=True)
class Scope:
    """A failed rollout is cut before its first bad step, corrected from there, and takes its own place in its group.

    What the corrector wrote stands as the policy's own forced run behind the policy's own steps: it is trained on, was
    not sampled, and its credit has the shaped weight π/(π + γ) instead of an importance ratio. `corrector` is another
    model with the policy's tokens; without one the policy itself writes again, and only what is right is kept. τ, the
    share that is repaired, γ and the group are reconstructed. A judge that cuts at a low step which is not the wrong
    one keeps the error, and then the verifier refuses what follows. Its evidence is a small policy's accuracy,
    against the better of plain groups and whole rollouts from as many tokens of the corrector, which do harm there.
    """

    card: ClassVar[Card] = Card(
        "scope", "Step-wise correction of failed rollouts", "SCOPE", 2025,
        "46.6 on average on mathematics, 53.4 out of distribution, 13.5 % more diversity",
        ("filter", "generate", "replay", "objective"), "grpo",
        Evidence("accuracy of the trained policy", "the better of plain groups and a corrector's whole rollouts",
                 least=0.02, seeds=10, check="rolltree_papers.scope.study:learned"),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    group: int = 8
    worth: str = "step"
    """Who grades steps: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    threshold: float = 0.5
    """τ: the first step graded below it is the error."""
    most: float = 1.0
    """Largest share of a group's failed rollouts that are repaired; 1 may leave none that failed."""
    tries: int = 1
    """Corrections of one rollout until one is right."""
    corrector: str = ""
    """Model that corrects: a name, a folder or a hub id; "" = the policy itself."""
    delimiter: str = ","
    """What ends a step."""
    gamma: float = 0.1
    """γ of the shaped weight of corrected tokens."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Rollouts with repairs, group credit, shaped forced tokens under the clipped surrogate."""
        from rolltree.objective.forced import ShapedForced

        check_group("scope", self.group)
        if not self.delimiter or not 0 < self.most <= 1 or self.tries < 1:
            raise RecipeError(
                f"scope: delimiter={self.delimiter!r} ends a step, most={self.most:g} is a share above 0, and "
                f"tries={self.tries} is 1 or more"
            )
        strategy = Repaired(self.group, judge_of(self.worth), self.threshold, self.most, self.tries, self.delimiter)
        objective = load_objective(
            "clipped", clip_low=self.clip, clip_high=self.clip, correction=(ShapedForced(self.gamma),)
        )
        peers = {CORRECTOR: Peer(self.corrector, trained=False)} if self.corrector else {}
        return Parts("scope", strategy, load_credit("grpo"), objective, averaging="sequence", peers=peers)
