"""What the metrics file does not hold, noted while a run goes on: sharing, answers, and what each held-out item got.

Lines go to a file of their own next to the run. A resumed run writes some steps again; the last line of a step counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from rolltree.lab.trace import TraceTally
from rolltree.task.solved import is_solved
from rolltree.train.loop import RunEvent
from rolltree.tree import Tree
from rolltree.tree.views import leaf_counts


class RunWatch:
    """A listener that writes down numbers of rollouts and tallies of held-out items."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, live: RunEvent) -> None:
        """Take note of a step's rollouts or of an evaluation."""
        if live.kind == "trained":
            self._write({"kind": "train", "step": live.step, **rollout_numbers(live.trees)})
        elif live.kind == "evaluated":
            items = {item: [t.samples, t.right, t.unique] for item, t in tallies(live.trees).items()}
            self._write({"kind": "eval", "step": live.step, "items": items})

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")


def noted(path: Path) -> tuple[dict[int, dict[str, float]], dict[str, TraceTally]]:
    """Numbers by step, and the last evaluation's tallies."""
    steps: dict[int, dict[str, float]] = {}
    items: dict[str, TraceTally] = {}
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not text.endswith("\n"):
            continue
        line = cast("dict[str, Any]", json.loads(text))
        if line["kind"] == "eval":
            items = {k: TraceTally(*v) for k, v in line["items"].items()}
        else:
            steps[line["step"]] = {k: v for k, v in line.items() if k not in ("kind", "step")}
    return steps, items


def rollout_numbers(trees: Iterable[Tree]) -> dict[str, float]:
    """Sharing (policy tokens on all paths over policy tokens decoded) and the share of different answers per group."""
    own = on_paths = 0
    unique: list[float] = []
    for tree in trees:
        counts = leaf_counts(tree)
        for node in tree:
            if node.role == "policy":
                own += len(node)
                on_paths += len(node) * counts[node.id]
        tally = _tally(tree)
        if tally.samples:
            unique.append(tally.unique / tally.samples)
    out = {"sharing": on_paths / own} if own else {}
    return out | ({"unique": float(np.mean(unique))} if unique else {})


def tallies(trees: Iterable[Tree]) -> dict[str, TraceTally]:
    """What each item got; items of which no sample could be judged are left out."""
    made = {tree.item or tree.id: _tally(tree) for tree in trees}
    return {item: tally for item, tally in made.items() if tally.samples}


def _tally(tree: Tree) -> TraceTally:
    """Judged leaves; leaves without an answer count as one more kind of answer."""
    done = [n for n in tree.leaves() if n.status == "done" and "reward" in n.scores]
    answers = {str(n.notes.get("answer")) for n in done}
    return TraceTally(len(done), sum(is_solved(n.scores) for n in done), len(answers))
