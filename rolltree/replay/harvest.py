"""The rollouts of one step, and how some of them are kept on disk until they are trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolltree.tree import Tree


@dataclass(slots=True)
class Harvest:
    """What was grown for one step of training: the trees hold versions and log-probs they were sampled with."""

    kept: list[Tree] = field(default_factory=list[Tree])
    dropped: list[Tree] = field(default_factory=list[Tree])
    rounds: int = 0
    version: int = -1
    """Weights it was grown under; -1 = unknown."""
    recalls: int = 0
    """Prompts that were not asked because that many earlier trees are to teach beside these."""
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    """Where the budget went; told when it is grown and not kept on disk."""

    @property
    def trees(self) -> list[Tree]:
        """Everything, in order of growth round by round."""
        return [*self.kept, *self.dropped]


def save_harvests(harvests: Sequence[Harvest], folder: Path) -> None:
    """Write harvests in order, each as a forest of its own. Environment states are left out: nothing grows on."""
    from rolltree.tree.parquet import save

    for number, harvest in enumerate(harvests):
        part = folder / f"{number:04d}"
        part.parent.mkdir(parents=True, exist_ok=True)
        save(harvest.trees, part, states="drop")
        said = {"kept": len(harvest.kept), "rounds": harvest.rounds, "version": harvest.version,
                "recalls": harvest.recalls}  # fmt: skip
        (part / "harvest.json").write_text(json.dumps(said))


def load_harvests(folder: Path) -> list[Harvest]:
    """Harvests as they were saved; none where there is no such folder."""
    from rolltree.tree.parquet import load

    out: list[Harvest] = []
    for part in sorted(folder.iterdir()) if folder.is_dir() else ():
        said: dict[str, Any] = json.loads((part / "harvest.json").read_text())
        trees = list(load(part))
        kept, rounds, version, recalls = (int(said[name]) for name in ("kept", "rounds", "version", "recalls"))
        out.append(Harvest(trees[:kept], trees[kept:], rounds, version, recalls))
    return out
