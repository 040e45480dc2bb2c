"""What the scheduler's rollouts are: samples that can be stopped anywhere, or trees that are grown as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Protocol

import numpy as np

from rolltree.control.order import Order
from rolltree.control.plan import Control
from rolltree.control.probe import PrunesInFlight
from rolltree.control.schedule import Rollout, Segment
from rolltree.control.schedule.scheduler import Finish
from rolltree.filter.groups import drop, live_leaves
from rolltree.generate.aside import join
from rolltree.generate.runner import settle
from rolltree.generate.strategy import SampleStrategy, TreeStrategy, on_each
from rolltree.generate.turns import hands_over
from rolltree.rollout.slots import RolloutSlot
from rolltree.tree import Node, Tree


class Unit(Protocol):
    """What one rollout is."""

    cuttable: ClassVar[bool]
    """Whether one can be stopped anywhere and written on later."""

    def size(self, order: Order) -> int:
        """How many an order is."""
        ...

    def ready(self, slot: RolloutSlot, rollout: Rollout) -> None:
        """Make the tree stand where the scheduler has the rollout; it may be stopped again before it grows."""
        ...

    async def grow(self, slot: RolloutSlot, rollout: Rollout) -> None:
        """Begin a rollout that is ready or go on with it; cancelling it leaves what exists in the tree."""
        ...

    def progress(self, slot: RolloutSlot, rollout: Rollout) -> tuple[list[Segment], Finish, int]:
        """What was made since the scheduler last heard, whether it has ended, and tokens of an unfinished turn."""
        ...

    def failed(self, slot: RolloutSlot, rollout: Rollout, error: BaseException) -> None:
        """Mark what an unforeseen error left behind."""
        ...

    def finalize(self, slot: RolloutSlot, rollouts: Iterable[Rollout]) -> None:
        """Make the tree say what the scheduler decided about its rollouts, when nobody writes in it any more."""
        ...


@dataclass(frozen=True, slots=True)
class PerSample:
    """A rollout is a sample: a branch of its own below the prompt."""

    strategy: SampleStrategy
    cuttable: ClassVar[bool] = True

    def _of(self, slot: RolloutSlot) -> SampleStrategy:
        return slot.given or self.strategy

    def size(self, order: Order) -> int:
        """As many as are ordered, or as the strategy grows."""
        return len(order.given) or order.width or self.strategy.samples

    def ready(self, slot: RolloutSlot, rollout: Rollout) -> None:
        """Prune what the scheduler took off the branch."""
        branch = _branch(slot, rollout)
        over = slot.reported.get(rollout.index, 0) - rollout.tokens
        while branch and over > 0:
            node = branch.pop()
            if node.trainable:
                over -= len(node)
            slot.hand.prune(node, why="made again after a stop")
        slot.reported[rollout.index] = rollout.tokens
        if not branch:
            slot.heads.pop(rollout.index, None)

    async def grow(self, slot: RolloutSlot, rollout: Rollout) -> None:
        """One branch, from the prompt or from where it was stopped."""
        branch, root, strategy = _branch(slot, rollout), slot.tree.root, self._of(slot)
        if branch:
            await strategy.grow_sample(slot.hand, branch[-1])
            return
        # The branch's first node stands before anything is awaited, so it is the next child.
        number = len(root.children)
        try:
            await strategy.grow_sample(slot.hand, None)
        finally:
            if len(root.children) > number:
                slot.heads[rollout.index] = root.children[number]
        if len(root.children) == number:
            slot.empty.add(rollout.index)

    def progress(self, slot: RolloutSlot, rollout: Rollout) -> tuple[list[Segment], Finish, int]:
        """Read off the branch."""
        branch = _branch(slot, rollout)
        if not branch:
            return [], "failed" if rollout.index in slot.empty else "abort", 0
        end, made = branch[-1], _segments(branch, slot.reported.get(rollout.index, 0))
        if end.status == "failed":
            return made, "failed", 0
        if self._of(slot).sampled(end):
            return made, "done", 0
        unfinished = end.role == "policy" and end.status in ("open", "paused") and not hands_over(slot.hand, end)
        return made, "abort", len(end) if unfinished else 0

    def failed(self, slot: RolloutSlot, rollout: Rollout, error: BaseException) -> None:
        """The branch's end is failed."""
        branch = _branch(slot, rollout)
        why = error if isinstance(error, Exception) else RuntimeError(repr(error))
        if not branch:
            slot.empty.add(rollout.index)
            slot.hand.event("fail", None, f"growing a sample crashed: {why}", error=type(why).__name__)
        elif branch[-1].status not in ("failed", "pruned"):
            slot.hand.fail(branch[-1], "growing", why)

    def finalize(self, slot: RolloutSlot, rollouts: Iterable[Rollout]) -> None:
        """Leaves of dropped rollouts say so; tokens that are context only are not trained on."""
        if slot.tree.root.is_leaf:
            settle([slot.tree], slot.hand.setting.clock())
        for rollout in rollouts:
            branch = _branch(slot, rollout)
            if branch and rollout.usage.startswith("dropped") and not branch[-1].usage:
                branch[-1].usage = rollout.usage
            left = rollout.masked
            for node in branch:
                if left > 0 and node.trainable:
                    keep = np.ones(len(node), np.bool_) if node.keep is None else node.keep
                    node.keep = keep & (np.arange(len(node)) >= left)
                    left -= len(node)


@dataclass(frozen=True, slots=True)
class PerTree:
    """A rollout is the growth of a whole tree, which cannot be cut: when it is to stop, it finishes first."""

    cuttable: ClassVar[bool] = False

    def size(self, order: Order) -> int:
        """One tree."""
        return 1

    def ready(self, slot: RolloutSlot, rollout: Rollout) -> None:
        """A tree is never cut, so it stands as it is."""

    async def grow(self, slot: RolloutSlot, rollout: Rollout) -> None:
        """Let the strategy grow the tree; where that failed before, a new one."""
        if len(slot.tree) > 1 or "failed" in slot.tree.notes:
            old = slot.tree
            join(old, slot.hand.setting.asides.pop(old.id, []), slot.hand.setting.clock())
            drop(old, "failed: begun again")
            slot.failed_trees.append(old)
            slot.tree = Tree(old.id, old.root.actions, task=old.task, item=old.item)
            slot.hand = slot.hand.on(slot.tree)
            slot.flight.seen.clear()
        await on_each([slot.tree], slot.hand, slot.strategy.grow_tree)
        settle([slot.tree], slot.hand.setting.clock())

    def progress(self, slot: RolloutSlot, rollout: Rollout) -> tuple[list[Segment], Finish, int]:
        """All tokens by version; failed where nothing of the tree has an outcome because something broke."""
        tree = slot.tree
        versions = [n.version for n in tree if n.trainable and n.version is not None]
        counts = Counter(np.concatenate(versions).tolist() if versions else ())
        made = [Segment(version, counts[version]) for version in sorted(counts)]
        broken = "failed" in tree.notes or any(leaf.status == "failed" for leaf in tree.leaves())
        if broken and not live_leaves(tree):
            return made, "failed", 0
        grown = all(leaf.ended for leaf in tree.leaves())  # a strategy may also have found nothing to grow
        return (made, "done", 0) if grown else (made if rollout.usage else [], "abort", 0)

    def failed(self, slot: RolloutSlot, rollout: Rollout, error: BaseException) -> None:
        """The tree says so."""
        slot.tree.notes["failed"] = repr(error)

    def finalize(self, slot: RolloutSlot, rollouts: Iterable[Rollout]) -> None:
        """Nothing to say: the tree that stands is the one that is trained."""


def unit_of(strategy: TreeStrategy, control: Control) -> Unit:
    """Samples are scheduled one by one; other trees, and what is looked at in flight, as a whole."""
    if isinstance(strategy, SampleStrategy) and not isinstance(control, PrunesInFlight):
        return PerSample(strategy)
    return PerTree()


def _branch(slot: RolloutSlot, rollout: Rollout) -> list[Node]:
    """A rollout's nodes from its first to where it stands; what was pruned is left out."""
    head = slot.heads.get(rollout.index)
    out: list[Node] = []
    here: Node | None = None if head is None else slot.tree[head]
    while here is not None:
        out.append(here)
        here = next((n for n in reversed(slot.tree.children(here)) if n.status != "pruned"), None)
    return out


def _segments(branch: list[Node], reported: int) -> list[Segment]:
    """The policy's tokens by the version that made them, after those that were reported."""
    versions: list[Any] = [n.version for n in branch if n.trainable and n.version is not None]
    flat: list[int] = np.concatenate(versions)[reported:].tolist() if versions else []
    return [Segment(version, len(list(run))) for version, run in groupby(flat)]
