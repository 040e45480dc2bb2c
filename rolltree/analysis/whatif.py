"""What if: from a place in a tree, further continuations are sampled, and grow beside those that are there.

The tree is a copy that the caller owns; what was saved is never touched. Everything that is sampled goes through a
hand, so an environment's state is restored (kept, or replayed and checked), every leaf is verified, and a crash is a
failed node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rolltree.analysis.lens import Averaging, advantages
from rolltree.analysis.prefix import AnalysisError
from rolltree.credit.advantage import Credit
from rolltree.engine.protocol import Engine, Sampling
from rolltree.engine.texts import tokens_of
from rolltree.generate.hand import Hand
from rolltree.generate.requests import WRITTEN
from rolltree.generate.runner import open_hand, settle
from rolltree.generate.turns import lacks_outcome
from rolltree.generate.turns import settle as settle_turn
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest, Node, Tree
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP, is_solved
from rolltree.tree.table import table


@dataclass(frozen=True, eq=False)
class WhatIf:
    """A place in a tree, and the hand that grows from it."""

    tree: Tree
    start: Node
    """The node whose continuations are sampled."""
    hand: Hand = field(repr=False)
    known: frozenset[int]
    """Ids of the nodes that stood before."""
    heard: Callable[[], object] = field(default=lambda: None, repr=False)
    """Called whenever something was written."""

    @property
    def new(self) -> list[int]:
        """Ids of the nodes that were sampled since."""
        return [n.id for n in self.tree if n.id not in self.known and n is not self.start]


def kept_tokens(tree: Tree, node: int, token: int | None) -> int:
    """How many tokens of a node stay before the new ones begin; a place that makes no sense is refused.

    What the policy wrote is sampled anew from a token on (its first unless given); what others wrote stays whole.
    """
    if node not in tree.nodes:
        raise AnalysisError(
            f"tree {tree.id!r} has no node {node}; its ids run from {min(tree.nodes)} to {max(tree.nodes)}"
        )
    here = tree[node]
    if here.role not in WRITTEN:
        if token is not None:
            raise AnalysisError(
                f"node {node} was not written by the policy but by {here.role}, so its tokens stay as they are; leave "
                "the token out to sample what follows it"
            )
        if here.is_leaf and here.parent is not None:
            raise AnalysisError(
                f"node {node} is a leaf in which {here.role} ended the rollout, so nothing follows it; choose a node "
                "of the policy above it"
            )
        return len(here)
    kept = 0 if token is None else token
    if not 0 <= kept < max(1, len(here)):
        raise AnalysisError(
            f"node {node} has {len(here)} tokens and none numbered {kept}; give one from 0 (all of it is sampled anew) "
            f"to {max(0, len(here) - 1)}"
        )
    return kept


async def begin(
    tree: Tree, node: int, token: int | None, *, engine: Engine, task: Task, item: Item, seed: int = 0,
    sampling: Sampling | None = None, max_tokens: int | None = None,
    heard: Callable[[], object] = lambda: None,
) -> WhatIf:  # fmt: skip
    """Find the place in a tree (which is changed: give a copy) and bring its environment there.

    `heard` is called whenever something was written.
    """
    kept = kept_tokens(tree, node, token)
    asked = tokens_of(engine, item.prompt, f"the prompt of item {item.id!r}")
    if not np.array_equal(asked, tree.root.actions):
        raise AnalysisError(
            f"item {item.id!r} of {task.name} asks something else than the prompt of tree {tree.id!r}, so its answer "
            "would be judged by another question; give the task, level and policy that the tree was made with"
        )
    hand = open_hand(engine, task, seed=seed, sampling=sampling, max_tokens=max_tokens, forest=Forest([tree]))
    hand = hand.on(hand.adopt(tree, item))
    known, here = frozenset(tree.nodes), tree[node]
    read = {name: here.notes[name] for name in (TRAINER_LOGP, TRAINER_ENTROPY) if name in here.notes}
    start = here if here.role not in WRITTEN else hand.place(here, len(tree.prefix(here)) - len(here) + kept)
    if start.id not in known:  # what the trainer noted of each token goes with its token
        for name, values in read.items():
            start.notes[name], here.notes[name] = values[:kept], values[kept:]
    for above in tree.path(start):  # a pruned branch may be asked what would have become of it
        above.status = "done"
    if hand.interactive and await hand.restore(start) is None:
        why = next((e.why for e in reversed(tree.events) if e.kind in ("fail", "budget")), "it gave no reason")
        raise AnalysisError(
            f"the environment of {task.name} cannot be brought back to where node {start.id} ends ({why}); choose an "
            "earlier place, or a task whose states can be copied or replayed"
        )
    return WhatIf(tree, start, hand, known, heard)


async def grow_on(asked: WhatIf, n: int) -> None:
    """Play n continuations to their ends. Cancelled, what was written stays and its leaves are paused."""
    hand, tree = asked.hand, asked.tree
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(n):
                group.create_task(_play(asked))
    finally:
        settle([tree], hand.setting.clock())
    if not asked.new:
        why = next((e.why for e in reversed(tree.events) if e.why), "it gave no reason")
        raise AnalysisError(f"nothing could be sampled behind node {asked.start.id} ({why}); choose an earlier place")


async def _play(asked: WhatIf) -> None:
    """One continuation to its end, written down token by token so that it can be watched."""
    hand, here, birth = asked.hand, asked.start, "resample"
    while True:
        async with hand.stream(here, birth=birth) as run:
            async for _ in run:
                asked.heard()
        if run.node is None:
            if lacks_outcome(here):
                await hand.verify(here)
            return
        here, birth = await settle_turn(hand, run.node), None
        asked.heard()
        if here.status != "open":
            return


@dataclass(frozen=True)
class LeavesBelow:
    """What became of the leaves at or below a node."""

    leaves: int
    judged: int
    right: int
    reward: float
    """Mean outcome of the judged ones; NaN where there are none."""


@dataclass(frozen=True, eq=False)
class BranchCredit:
    """A branch at the place: what is below it, and its credit before and after. The first one is what they share."""

    node: Node
    fresh: bool
    """Whether it was sampled by the what-if."""
    below: LeavesBelow
    before: float
    """Mean advantage of the node's own tokens in the tree as it was; NaN where it was taught nothing."""
    after: float


def before_after(old: Tree, new: Tree, start: int, credit: Credit, how: Averaging | None = None) -> list[BranchCredit]:
    """The node at a place and the branches behind it, with the credit of each in the old tree and in the grown one.

    Both credits are computed on the one tree, the new one with the new leaves in the group; the tokens compared are
    the same ones, also where the old node was cut at the place.
    """
    then, now = table([old]), table([new])
    was, is_ = advantages(then, credit, how), advantages(now, credit, how)
    row_then = {node.id: i for i, node in enumerate(then.nodes)}
    row_now = {node.id: i for i, node in enumerate(now.nodes)}
    here = new[start]
    # Where a node was cut its tail kept the id, and the head, which is the place, got a new one.
    tail = None if start in old.nodes else next(c for c in here.children if c in old.nodes)
    out: list[BranchCredit] = []
    for node in (here, *new.children(here)):
        before, known = float("nan"), tail if node is here and tail is not None else node.id
        if known in row_then:
            first = int(then.start[row_then[known]]) + (len(here) if node.id == tail else 0)
            before = _own(was, first, len(node))
        after = _own(is_, int(now.start[row_now[node.id]]), len(node))
        out.append(BranchCredit(node, known not in row_then, judged_below(new, node), before, after))
    return out


def judged_below(tree: Tree, node: Node) -> LeavesBelow:
    """What became of the leaves at or below a node."""
    leaves = tree.leaves(node)
    scored = [leaf.scores for leaf in leaves if "reward" in leaf.scores]
    right = sum(map(is_solved, scored))
    mean = sum(s["reward"] for s in scored) / len(scored) if scored else float("nan")
    return LeavesBelow(len(leaves), len(scored), right, mean)


def _own(values: np.ndarray, at: int, length: int) -> float:
    own = values[at : at + length]
    known = own[np.isfinite(own)]
    return float(known.mean()) if len(known) else float("nan")
