"""Batches of rollouts, on disk and in memory, and the past ones that are trained on again.

A share of each batch may come from the last few versions (ReMix, arXiv 2507.06892; DOTS with rollout replay, arXiv
2506.05316).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.filter.groups import Mixed
from rolltree.tree import Node, Tree
from rolltree.tree.node import FloatArray, is_solved
from rolltree.tree.store.values import read_json


@dataclass(slots=True)
class RolloutBatch:
    """What was grown for one step of training: the trees hold versions and log-probs they were sampled with."""

    kept: list[Tree] = field(default_factory=list[Tree])
    dropped: list[Tree] = field(default_factory=list[Tree])
    version: int = -1
    """Weights the engine had when it was taken; -1 = unknown."""
    recalls: int = 0
    """Prompts that were not asked because that many earlier trees are to be trained beside these."""
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    """Where the budget of the plans went that ended since the last batch; not kept on disk."""
    fresh: list[Tree] = field(default_factory=list[Tree])
    """Trees that were finished since the last batch, where batches wait those of later ones; not kept on disk."""

    @property
    def trees(self) -> list[Tree]:
        """Everything, what is trained first."""
        return [*self.kept, *self.dropped]


def save_batches(batches: Sequence[RolloutBatch], folder: Path) -> None:
    """Write batches in order, each as a forest of its own. Environment states are left out: nothing grows on."""
    from rolltree.tree.store.parquet import save

    for number, batch in enumerate(batches):
        part = folder / f"{number:04d}"
        part.parent.mkdir(parents=True, exist_ok=True)
        save(batch.trees, part, states="drop")
        about = {"kept": len(batch.kept), "version": batch.version, "recalls": batch.recalls}
        (part / "batch.json").write_text(json.dumps(about))


def load_batches(folder: Path) -> list[RolloutBatch]:
    """Batches as they were saved; none where there is no such folder."""
    from rolltree.tree.store.parquet import load

    out: list[RolloutBatch] = []
    for part in sorted(folder.iterdir()) if folder.is_dir() else ():
        about: dict[str, Any] = read_json((part / "batch.json").read_text())
        trees = list(load(part))
        kept, version, recalls = (int(about[name]) for name in ("kept", "version", "recalls"))
        out.append(RolloutBatch(trees[:kept], trees[kept:], version, recalls))
    return out


Draw = Literal["chance", "age", "recent"]
"""How trees are chosen for another turn."""


@dataclass(frozen=True, slots=True)
class Recall:
    """A share of a step's prompts is not asked anew: their trees are drawn from the `window` steps before.

    Whole trees are recalled, so the statistics of a group stay those of its own rollouts. By `order` "chance" they are
    drawn at random and stay for the next draw; by "age" they stand in a queue, and the oldest leave it for good. By
    "recent" they are drawn as by chance, half by how late they came and half by how rare their domain is among them
    (TTI's replay); a domain is what their items' ids say before the last hyphen.
    """

    share: float = 0.4
    window: int = 2
    order: Draw = "chance"
    solved: bool = False
    """Remember only trees with a rollout that is right: what imitation can learn from."""
    informative: bool = False
    """Remember only trees whose outcomes differ: a group without variance has no gradient a second time either."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise RolltreeError(f"recall: share={self.share} must lie between 0 and 1; leave recall out for none")
        if self.window < 1:
            raise RolltreeError(f"recall: window={self.window} makes no sense; give a whole number of at least 1")
        if self.order not in get_args(Draw):
            raise RolltreeError(f"recall: order={self.order!r} is none of {', '.join(get_args(Draw))}")

    def count(self, prompts: int, available: int) -> int:
        """How many of a step's trees are recalled, given how many there are to choose from."""
        return min(round(self.share * prompts), available, prompts - 1)


@dataclass(slots=True)
class ReplayBuffer:
    """The trees trained in the last steps."""

    steps: deque[RolloutBatch] = field(default_factory=deque[RolloutBatch])

    @property
    def trees(self) -> list[Tree]:
        """All of them, oldest first."""
        return [tree for batch in self.steps for tree in batch.kept]

    def draw(self, count: int, seed: int, order: Draw = "chance") -> list[Tree]:
        """Some of them without repetition, as they were before training: leaves forget what became of them."""
        if order == "age":
            drawn = self._oldest(count)
        elif order == "recent":
            chosen = np.random.default_rng(seed).choice(len(self.trees), count, replace=False, p=recent(self.trees))
            drawn = [self.trees[i] for i in chosen] if count else []
        else:
            drawn = Random(seed).sample(self.trees, count)
        for tree in drawn:
            forget(tree.leaves())
        return drawn

    def _oldest(self, count: int) -> list[Tree]:
        out: list[Tree] = []
        for batch in self.steps:
            due = min(count - len(out), len(batch.kept))
            out += batch.kept[:due]
            batch.kept = batch.kept[due:]
        return out

    def remember(self, batch: RolloutBatch, recall: Recall) -> None:
        """Add a step's own trees, of which a rule may want only some, and let the oldest beyond the window go."""
        mixed = Mixed()
        kept = [tree for tree in batch.kept if not recall.informative or mixed(tree) is None]
        kept = [tree for tree in kept if not recall.solved or any(is_solved(n.scores) for n in tree.leaves())]
        self.steps.append(RolloutBatch(kept, version=batch.version))
        while len(self.steps) > recall.window:
            self.steps.popleft()

    def save(self, folder: Path) -> None:
        """Write all of them."""
        save_batches(self.steps, folder)

    def load(self, folder: Path) -> None:
        """Go back to what was written."""
        self.steps = deque(load_batches(folder))


def recent(trees: Sequence[Tree]) -> FloatArray | None:
    """Chances to be drawn: half in proportion to the place in the list, half to one over the domain's share."""
    if not trees:
        return None
    late = np.arange(1, len(trees) + 1, dtype=np.float64)
    domains = [tree.item.rpartition("-")[0] for tree in trees]
    rare = 1.0 / np.asarray([domains.count(domain) for domain in domains], np.float64)
    return 0.5 * late / late.sum() + 0.5 * rare / rare.sum()


def forget(leaves: Iterable[Node]) -> None:
    """Let leaves be live again that were trained on before, or had no gradient then."""
    for leaf in leaves:
        if leaf.usage in ("trained", "dropped: no credit"):
            leaf.usage = ""
