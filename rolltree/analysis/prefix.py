"""Trees merged by prefix: rollouts that begin with the same tokens share them, however they were sampled.

A group of independent samples forks at its prompt only; merged, it forks where its answers begin to differ. Tokens are
the same when the same role wrote the same id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.tree.shape import Ints, Shape
from rolltree.tree.source import TreeColumns

Place = tuple[int, int]
"""A row of the source, and how many of its actions are behind."""


class AnalysisError(RolltreeError, ValueError):
    """Rollouts that cannot be analysed so; says why and what would do."""


@dataclass(frozen=True, eq=False)
class Merged:
    """Spans of tokens, depth first. A span lies within one node of the source and is shared by all leaves below it."""

    shape: Shape
    row: Ints
    """Per span, a row of the source that holds its tokens."""
    offset: Ints
    """Where in that row the span begins."""
    length: Ints
    """Tokens of the span; 0 for a rollout that ends where others go on."""
    entered: tuple[Ints, ...]
    """Per span, the rows of the source whose tokens go into it, each by itself."""
    parted: tuple[Ints, ...]
    """Per span, the rows of the source that go on (or end) behind it, each by itself: independent continuations."""

    def source_leaf(self) -> Ints:
        """Per leaf, the source's row of the rollout that ends there."""
        return np.array([int(self.parted[i][0]) for i in self.shape.leaf.tolist()], np.int64)


class Merging:
    """Merges trees of one source; its columns are read once."""

    def __init__(self, source: TreeColumns) -> None:
        actions, at = source.ragged("actions")
        lengths = source.numbers("length")
        if actions.dtype.kind not in "iu" or actions.ndim > 1 or not np.array_equal(np.diff(at), lengths):
            raise AnalysisError("rollouts are merged token by token, and the actions of these are not token ids")
        self.actions, self.at = actions, at
        self.role, _ = source.words("role")
        self.shape = source.shape

    def size(self, row: int) -> int:
        """Tokens of a row."""
        return int(self.at[row + 1] - self.at[row])

    def behind(self, row: int) -> list[tuple[Place, bool]]:
        """Where the rollouts of a row go on after its end, and whether they are over there."""
        if self.shape.is_leaf[row]:
            return [((row, self.size(row)), True)]
        out: list[tuple[Place, bool]] = []
        for child in self.shape.children(row):
            out += [((child, 0), False)] if self.size(child) else self.behind(child)
        return out

    def shared(self, places: list[Place]) -> int:
        """How many tokens the rows behind some places have in common, up to the first row's end."""
        runs = [self.actions[self.at[row] + done : self.at[row + 1]] for row, done in places]
        length = min(map(len, runs))
        for other in runs[1:]:
            differs = np.flatnonzero(runs[0][:length] != other[:length])
            length = int(differs[0]) if len(differs) else length
        return length

    def key(self, place: Place) -> tuple[int, int]:
        """What makes the next tokens of two rows the same."""
        row, done = place
        return int(self.role[row]), int(self.actions[self.at[row] + done])

    def merge(self, roots: Iterable[int]) -> Merged:
        """The rollouts below some roots, merged; roots of one prompt become one tree, of others one each."""
        parent: list[int] = []
        spans: list[tuple[int, int, int]] = []
        entered, parted = list[Ints](), list[Ints]()
        tree: list[int] = []
        starts: dict[tuple[int, bytes], list[Place]] = {}
        for root in roots:
            prompt = self.actions[self.at[root] : self.at[root + 1]].tobytes()
            starts.setdefault((int(self.role[root]), prompt), []).append((int(root), 0))
        waiting = [(-1, number, False, places) for number, places in enumerate(starts.values())][::-1]
        while waiting:
            above, number, ended, places = waiting.pop()
            here = len(parent)
            length = 0 if ended else self.shared(places)
            parent.append(above)
            tree.append(number)
            spans.append((*places[0], length))
            entered.append(np.array([row for row, _ in places], np.int64))
            ahead: list[tuple[Place, bool]] = []
            for row, done in places:
                over = done + length == self.size(row)
                ahead += self.behind(row) if over and not ended else [((row, done + length), over)]
            parted.append(np.array([row for (row, _), _ in ahead], np.int64))
            if len(ahead) == 1 and ahead[0][1]:
                continue
            groups: dict[tuple[int, int], list[Place]] = {}
            for place, over in ahead:
                groups.setdefault((-1, place[0]) if over else self.key(place), []).append(place)
            waiting += [(here, number, key[0] == -1, group) for key, group in reversed(groups.items())]
        rows, offset, length = (np.array(column, np.int64) for column in zip(*spans, strict=True)) if spans else _NONE
        shape = Shape(np.array(tree, np.int64), np.array(parent, np.int64))
        return Merged(shape, rows, offset, length, tuple(entered), tuple(parted))


def merged(source: TreeColumns, roots: Iterable[int]) -> Merged:
    """The rollouts below some roots, merged: `Merging(source).merge(roots)`."""
    return Merging(source).merge(roots)


_NONE = (np.zeros(0, np.int64),) * 3
