"""Between growth and training: a queue, oldest first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from rolltree.replay.harvest import Harvest, load_harvests, save_harvests


@dataclass(slots=True)
class Waiting:
    """Harvests in order of growth. Each is trained once, the oldest first."""

    held: deque[Harvest] = field(default_factory=deque[Harvest])

    def __len__(self) -> int:
        return len(self.held)

    @property
    def leaves(self) -> int:
        """Leaves of all that waits."""
        return sum(len(tree.leaves()) for harvest in self.held for tree in harvest.trees)

    def put(self, harvest: Harvest) -> None:
        """Add the newest."""
        self.held.append(harvest)

    def take(self) -> Harvest:
        """Remove the oldest."""
        return self.held.popleft()

    def save(self, folder: Path) -> None:
        """Write all that waits."""
        save_harvests(self.held, folder)

    def load(self, folder: Path) -> None:
        """Go back to what was written."""
        self.held = deque(load_harvests(folder))
