"""Past rollouts that teach again: a share of each batch comes from the last few versions (ReMix, arXiv 2507.06892; DOTS
with rollout replay, arXiv 2506.05316)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rolltree.errors import RolltreeError
from rolltree.filter.groups import Mixed
from rolltree.replay.rollout_batch import RolloutBatch, load_batches, save_batches
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Recall:
    """A share of a step's prompts is not asked anew: their trees are drawn from the `window` steps before.

    PerTree trees are recalled, so the statistics of a group stay those of its own rollouts.
    """

    share: float = 0.4
    window: int = 2
    until: int | None = None
    """Steps after which nothing is recalled any more; None = never."""
    informative: bool = False
    """Remember only trees whose outcomes differ: a group without variance has nothing to teach again either."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise RolltreeError(f"recall: share={self.share} must lie between 0 and 1; leave recall out for none")
        if self.window < 1:
            raise RolltreeError(f"recall: window={self.window} makes no sense; give a whole number of at least 1")

    def count(self, prompts: int, step: int, available: int) -> int:
        """How many of a step's trees are recalled, given how many there are to choose from."""
        if self.until is not None and step >= self.until:
            return 0
        return min(round(self.share * prompts), available, prompts - 1)


@dataclass(slots=True)
class ReplayBuffer:
    """The trees trained in the last steps."""

    steps: deque[RolloutBatch] = field(default_factory=deque[RolloutBatch])

    @property
    def trees(self) -> list[Tree]:
        """All of them, oldest first."""
        return [tree for batch in self.steps for tree in batch.kept]

    def draw(self, count: int, seed: int) -> list[Tree]:
        """Some of them without repetition, as they were before they taught: leaves forget what became of them."""
        drawn = Random(seed).sample(self.trees, count)
        for tree in drawn:
            forget(tree.leaves())
        return drawn

    def remember(self, batch: RolloutBatch, recall: Recall) -> None:
        """Add a step's own trees, of which a rule may want only some, and let the oldest beyond the window go."""
        mixed = Mixed()
        kept = [tree for tree in batch.kept if not recall.informative or mixed(tree) is None]
        self.steps.append(RolloutBatch(kept, version=batch.version))
        while len(self.steps) > recall.window:
            self.steps.popleft()

    def save(self, folder: Path) -> None:
        """Write all of them."""
        save_batches(self.steps, folder)

    def load(self, folder: Path) -> None:
        """Go back to what was written."""
        self.steps = deque(load_batches(folder))


def forget(leaves: Iterable[Node]) -> None:
    """Let leaves be live again that taught before, or had nothing to teach then."""
    for leaf in leaves:
        if leaf.usage in ("trained", "dropped: nothing to teach"):
            leaf.usage = ""
