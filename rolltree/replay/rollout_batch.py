"""The rollouts of one step of training, and how batches are kept on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolltree.tree import Tree
from rolltree.tree.json_text import read_json


@dataclass(slots=True)
class RolloutBatch:
    """What was grown for one step of training: the trees hold versions and log-probs they were sampled with."""

    kept: list[Tree] = field(default_factory=list[Tree])
    dropped: list[Tree] = field(default_factory=list[Tree])
    version: int = -1
    """Weights the engine had when it was taken; -1 = unknown."""
    recalls: int = 0
    """Prompts that were not asked because that many earlier trees are to teach beside these."""
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
    from rolltree.tree.parquet import save

    for number, batch in enumerate(batches):
        part = folder / f"{number:04d}"
        part.parent.mkdir(parents=True, exist_ok=True)
        save(batch.trees, part, states="drop")
        about = {"kept": len(batch.kept), "version": batch.version, "recalls": batch.recalls}
        (part / "batch.json").write_text(json.dumps(about))


def load_batches(folder: Path) -> list[RolloutBatch]:
    """Batches as they were saved; none where there is no such folder."""
    from rolltree.tree.parquet import load

    out: list[RolloutBatch] = []
    for part in sorted(folder.iterdir()) if folder.is_dir() else ():
        about: dict[str, Any] = read_json((part / "batch.json").read_text())
        trees = list(load(part))
        kept, version, recalls = (int(about[name]) for name in ("kept", "version", "recalls"))
        out.append(RolloutBatch(trees[:kept], trees[kept:], version, recalls))
    return out
