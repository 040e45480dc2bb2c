"""What the metrics file does not hold, noted while a run goes on: what each held-out item got.

Lines go to a file of their own next to the run. A resumed run writes some steps again; the last line of a step counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rolltree.lab.trace import TraceTally
from rolltree.metrics.log import read_lines
from rolltree.train.loop import RunEvent
from rolltree.tree import Tree
from rolltree.tree.node import is_solved


class RunWatch:
    """A listener that writes down tallies of held-out items."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, live: RunEvent) -> None:
        """Take note of an evaluation."""
        if live.kind == "evaluated":
            items = {item: [t.samples, t.right, t.unique] for item, t in tallies(live.trees).items()}
            self._write({"kind": "eval", "step": live.step, "items": items})

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")


def noted(path: Path) -> tuple[dict[str, TraceTally], dict[str, TraceTally]]:
    """The first and the last evaluation's tallies; none where nothing was evaluated."""
    found = [line for line in read_lines(path) if line["kind"] == "eval"] if path.exists() else []
    ends = (found[0], found[-1]) if found else ({"items": {}}, {"items": {}})
    first, last = ({item: TraceTally(*tally) for item, tally in end["items"].items()} for end in ends)
    return first, last


def tallies(trees: Iterable[Tree]) -> dict[str, TraceTally]:
    """What each item got; items of which no sample could be judged are left out."""
    made = {tree.item or tree.id: _tally(tree) for tree in trees}
    return {item: tally for item, tally in made.items() if tally.samples}


def _tally(tree: Tree) -> TraceTally:
    """Judged leaves; leaves without an answer count as one more kind of answer."""
    done = [n for n in tree.leaves() if n.status == "done" and "reward" in n.scores]
    answers = {str(n.notes.get("answer")) for n in done}
    return TraceTally(len(done), sum(is_solved(n.scores) for n in done), len(answers))
