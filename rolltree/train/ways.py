"""How a scheduled rollout is grown, stopped and written on: flat rollouts one by one, other trees as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar, Protocol

import numpy as np

from rolltree.control.order import Order
from rolltree.control.plan import Control
from rolltree.control.probe import PrunesInFlight
from rolltree.control.schedule import Rollout, Segment
from rolltree.control.schedule.executor import Finish
from rolltree.filter.groups import drop, live_leaves
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.probed import InFlight
from rolltree.generate.runner import settle
from rolltree.generate.strategy import TreeStrategy, on_each
from rolltree.generate.turns import hands_over, lacks_outcome, play, proceed
from rolltree.train.waves import Sheet
from rolltree.tree import Node, Tree


@dataclass(slots=True, eq=False)
class Plot:
    """Where the rollouts of one order grow: a part of a group."""

    sheet: Sheet
    """The round it is of."""
    index: int
    """The order's place in the round."""
    tree: Tree
    hand: Hand
    strategy: TreeStrategy
    """What grows the tree where it is grown as a whole."""
    flight: InFlight
    tops: dict[int, int] = field(default_factory=dict[int, int])
    """The first node of each rollout, by its place in the group."""
    reported: dict[int, int] = field(default_factory=dict[int, int])
    """Tokens of each rollout that the scheduler has heard of, what it took off since included."""
    lost: list[Tree] = field(default_factory=list[Tree])
    """Trees whose growth failed and was begun again."""
    gathering: bool = False
    """Whether it is over, and the log-probs of what was gathered are being read."""

    @property
    def order(self) -> Order:
        """What grows here."""
        return self.sheet.orders[self.index]


@dataclass(slots=True, eq=False)
class Bed:
    """What a group of the scheduler is about: one prompt of one plan."""

    wave: int
    place: int
    """In the plan."""
    for_training: bool = True
    """Whether it is to be trained, or only measured."""
    plots: dict[int, Plot] = field(default_factory=dict[int, Plot])
    """Parts of the group whose results the plan does not know yet."""
    gathered: Tree | None = None
    """The prompt's tree, once something is in it."""
    lost: list[Tree] = field(default_factory=list[Tree])
    """What grew and is not part of it."""

    def trees(self) -> list[Tree]:
        """All that grew, the tree that is trained first."""
        growing = [tree for plot in self.plots.values() for tree in (plot.tree, *plot.lost)]
        there = [] if self.gathered is None else [self.gathered]
        return [*there, *growing, *self.lost]

    @property
    def tree(self) -> Tree:
        """The tree that is trained."""
        return self.trees()[0]


class Way(Protocol):
    """What a rollout is to the scheduler."""

    cuttable: ClassVar[bool]
    """Whether one can be stopped anywhere and written on later."""

    def size(self, order: Order) -> int:
        """How many an order is."""
        ...

    def ready(self, plot: Plot, rollout: Rollout) -> None:
        """Make the tree stand where the scheduler has the rollout; it may be stopped again before it plays."""
        ...

    async def play(self, plot: Plot, rollout: Rollout) -> None:
        """Begin a rollout that is ready or go on with it; cancelling it leaves what exists in the tree."""
        ...

    def stand(self, plot: Plot, rollout: Rollout) -> tuple[list[Segment], Finish, int]:
        """What was made since the scheduler last heard, whether it has ended, and tokens of an unfinished turn."""
        ...

    def failed(self, plot: Plot, rollout: Rollout, error: BaseException) -> None:
        """Mark what an unforeseen error left behind."""
        ...

    def ripe(self, plot: Plot, rollouts: Iterable[Rollout]) -> None:
        """Make the tree say what the scheduler decided about its rollouts, when nobody writes in it any more."""
        ...


@dataclass(frozen=True, slots=True)
class Flat:
    """A rollout is a branch of its own below the prompt."""

    strategy: Independent
    cuttable: ClassVar[bool] = True

    def size(self, order: Order) -> int:
        """As many as are ordered, or as the strategy grows."""
        return order.width or self.strategy.n

    def ready(self, plot: Plot, rollout: Rollout) -> None:
        """Prune what the scheduler took off the branch."""
        branch = _branch(plot, rollout)
        over = plot.reported.get(rollout.index, 0) - rollout.tokens
        while branch and over > 0:
            node = branch.pop()
            if node.trainable:
                over -= len(node)
            plot.hand.prune(node, why="made again after a stop")
        plot.reported[rollout.index] = rollout.tokens
        if not branch:
            plot.tops.pop(rollout.index, None)

    async def play(self, plot: Plot, rollout: Rollout) -> None:
        """One branch, from the prompt or from where it was stopped."""
        hand, root, want, verify = plot.hand, plot.tree.root, self.strategy.want, self.strategy.verify
        branch = _branch(plot, rollout)
        here = branch[-1] if branch else None
        if here is None:
            # The branch's first node stands before anything is awaited, so it is the next child.
            number = len(root.children)
            try:
                await play(hand, root, want=want, verify=verify)
            finally:
                if len(root.children) > number:
                    plot.tops[rollout.index] = root.children[number]
        elif here.status in ("open", "paused") or lacks_outcome(here):
            await proceed(hand, here, want=want, verify=verify)
        elif here.status == "done" and not here.is_leaf:
            await play(hand, here, want=want, verify=verify)

    def stand(self, plot: Plot, rollout: Rollout) -> tuple[list[Segment], Finish, int]:
        """Read off the branch."""
        branch = _branch(plot, rollout)
        if not branch:
            return [], "abort", 0
        end, made = branch[-1], _segments(branch, plot.reported.get(rollout.index, 0))
        if end.status == "failed":
            return made, "failed", 0
        if end.status == "done" and end.is_leaf and not (self.strategy.verify and lacks_outcome(end)):
            return made, "done", 0
        unfinished = end.role == "policy" and end.status in ("open", "paused") and not hands_over(plot.hand, end)
        return made, "abort", len(end) if unfinished else 0

    def failed(self, plot: Plot, rollout: Rollout, error: BaseException) -> None:
        """The branch's end is failed."""
        branch = _branch(plot, rollout)
        why = error if isinstance(error, Exception) else RuntimeError(repr(error))
        if branch and branch[-1].status not in ("failed", "pruned"):
            plot.hand.fail(branch[-1], "growing", why)

    def ripe(self, plot: Plot, rollouts: Iterable[Rollout]) -> None:
        """Leaves of dropped rollouts say so; tokens that are context only do not teach."""
        for rollout in rollouts:
            branch = _branch(plot, rollout)
            if branch and rollout.usage.startswith("dropped") and not branch[-1].usage:
                branch[-1].usage = rollout.usage
            left = rollout.masked
            for node in branch:
                if left > 0 and node.trainable:
                    keep = np.ones(len(node), np.bool_) if node.keep is None else node.keep
                    node.keep = keep & (np.arange(len(node)) >= left)
                    left -= len(node)


@dataclass(frozen=True, slots=True)
class Whole:
    """A rollout is the growth of a whole tree, which cannot be cut: when it is to stop, it finishes first."""

    cuttable: ClassVar[bool] = False

    def size(self, order: Order) -> int:
        """One tree."""
        return 1

    def ready(self, plot: Plot, rollout: Rollout) -> None:
        """A tree is never cut, so it stands as it is."""

    async def play(self, plot: Plot, rollout: Rollout) -> None:
        """Let the strategy grow the tree; where that failed before, a new one."""
        if len(plot.tree) > 1 or "failed" in plot.tree.notes:
            old = plot.tree
            drop(old, "failed: begun again")
            plot.lost.append(old)
            plot.tree = Tree(old.id, old.root.actions, task=old.task, item=old.item)
            plot.hand = plot.hand.on(plot.tree)
            plot.flight.seen.clear()
        await on_each([plot.tree], plot.hand, plot.strategy.grow_tree)
        settle([plot.tree], plot.hand.setting.clock())

    def stand(self, plot: Plot, rollout: Rollout) -> tuple[list[Segment], Finish, int]:
        """All tokens by version; failed where nothing of the tree has an outcome because something broke."""
        tree = plot.tree
        versions = [n.version for n in tree if n.trainable and n.version is not None]
        counts = Counter(np.concatenate(versions).tolist() if versions else ())
        made = [Segment(version, counts[version]) for version in sorted(counts)]
        broken = "failed" in tree.notes or any(leaf.status == "failed" for leaf in tree.leaves())
        if broken and not live_leaves(tree):
            return made, "failed", 0
        grown = len(tree) > 1 and all(leaf.ended for leaf in tree.leaves())
        return (made, "done", 0) if grown else (made if rollout.usage else [], "abort", 0)

    def failed(self, plot: Plot, rollout: Rollout, error: BaseException) -> None:
        """The tree says so."""
        plot.tree.notes["failed"] = repr(error)

    def ripe(self, plot: Plot, rollouts: Iterable[Rollout]) -> None:
        """Nothing to say: the tree that stands is the one that is trained."""


def way_of(strategy: TreeStrategy, control: Control) -> Way:
    """Independent rollouts are scheduled one by one; other trees, and what is looked at in flight, as a whole."""
    return Flat(strategy) if type(strategy) is Independent and not isinstance(control, PrunesInFlight) else Whole()


def _branch(plot: Plot, rollout: Rollout) -> list[Node]:
    """A rollout's nodes from its first to where it stands; what was pruned is left out."""
    top = plot.tops.get(rollout.index)
    out: list[Node] = []
    here: Node | None = None if top is None else plot.tree[top]
    while here is not None:
        out.append(here)
        here = next((n for n in reversed(plot.tree.children(here)) if n.status != "pruned"), None)
    return out


def _segments(branch: list[Node], told: int) -> list[Segment]:
    """The policy's tokens by the version that made them, after the first `told`."""
    versions: list[Any] = [n.version for n in branch if n.trainable and n.version is not None]
    flat: list[int] = np.concatenate(versions)[told:].tolist() if versions else []
    return [Segment(version, len(list(run))) for version, run in groupby(flat)]
