"""What the metrics file does not hold, noted while a run goes on: what each held-out item got, how long rollouts were.

Lines go to a file of their own next to the run. A resumed run writes some steps again; the last line of a step counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rolltree.compare.trace import TraceTally
from rolltree.metrics.log import read_lines
from rolltree.training.loop import RunEvent
from rolltree.tree import Tree
from rolltree.tree.node import is_solved
from rolltree.tree.store.atomic import naming


class RunWatch:
    """A listener that writes down tallies of held-out items, and the lengths of what was trained on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, live: RunEvent) -> None:
        """Take note of an evaluation or a step."""
        if live.kind == "evaluated":
            items = {item: [t.samples, t.right, t.unique] for item, t in tallies(live.trees).items()}
            self._write({"kind": "eval", "step": live.step, "items": items})
        elif live.kind == "trained":
            self._write({"kind": "lengths", "step": live.step, "groups": [own_tokens(tree) for tree in live.trees]})

    def _write(self, line: Mapping[str, Any]) -> None:
        with naming(self.path), self.path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")


def noted(path: Path) -> tuple[dict[str, TraceTally], dict[str, TraceTally]]:
    """The first and the last evaluation's tallies; none where nothing was evaluated."""
    found = [line for line in read_lines(path) if line["kind"] == "eval"] if path.exists() else []
    ends = (found[0], found[-1]) if found else ({"items": {}}, {"items": {}})
    first, last = ({item: TraceTally(*tally) for item, tally in end["items"].items()} for end in ends)
    return first, last


def lengths(path: Path) -> list[list[list[int]]]:
    """Policy tokens of every rollout by step and group; none where they were not noted."""
    found = [line for line in read_lines(path) if line["kind"] == "lengths"] if path.exists() else []
    last = {int(line["step"]): line["groups"] for line in found}
    return [last[step] for step in sorted(last)]


def own_tokens(tree: Tree) -> list[int]:
    """Policy tokens on the path of each leaf that ended or was stopped."""
    ended = (leaf for leaf in tree.leaves() if leaf.status != "open")
    return [sum(len(n) for n in tree.path(leaf) if n.role == "policy") for leaf in ended]


def tallies(trees: Iterable[Tree]) -> dict[str, TraceTally]:
    """What each item got; items of which no sample could be judged are left out."""
    made = {tree.item or tree.id: _tally(tree) for tree in trees}
    return {item: tally for item, tally in made.items() if tally.samples}


def _tally(tree: Tree) -> TraceTally:
    """Judged leaves; leaves without an answer count as one more kind of answer."""
    done = [n for n in tree.leaves() if n.status == "done" and "reward" in n.scores]
    answers = {str(n.notes.get("answer")) for n in done}
    return TraceTally(len(done), sum(is_solved(n.scores) for n in done), len(answers))
