"""Failed rollouts repaired from their first bad step on, and put back into their group (SCOPE).

A step judge finds the first step below τ; a corrector goes on from the step before; where the verifier accepts what it
wrote, that becomes the policy's own forced run behind the policy's own prefix, and takes the failed rollout's place.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, entries
from rolltree.generate.judge.recorded import ReadsJudge
from rolltree.generate.methods.step_labels import step_ends
from rolltree.generate.needs import refuse_environment
from rolltree.generate.search.steps import finished
from rolltree.generate.setting import HandError
from rolltree.generate.signals import features
from rolltree.generate.turns import play
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree
from rolltree.tree.node import join_actions
from rolltree.tree.steps import solved, steps_of

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
