"""Rollouts of one step as columns over nodes and leaves: what the numbers of a step and the doctor compute on.

Nothing here walks objects, so a forest of a million nodes takes seconds. Rows are nodes; leaves are rows without
children, a prompt from which nothing grew left out.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.task.solved import SOLVED
from rolltree.train.sources import Source
from rolltree.tree import shape
from rolltree.tree.node import Array
from rolltree.tree.shape import offsets
from rolltree.tree.table import Bools, Floats, Ints

CUT = ("length", "budget", "depth")
"""Finishes of a rollout that a limit ended."""


class Rollouts:
    """A columnar view of trees. `version` is the weights' current version, where it is known."""

    def __init__(self, source: Source, version: int | None = None) -> None:
        self.source = source
        self._version = version

    # -- nodes -----------------------------------------------------------------------------------------------------

    @cached_property
    def tree(self) -> Ints:
        """Index of each node's tree."""
        return np.repeat(np.arange(len(self.source.ids)), self.source.sizes)

    @cached_property
    def id(self) -> Ints:
        """Id of each node within its tree."""
        return self.source.numbers("id").astype(np.int64)

    @cached_property
    def parent(self) -> Ints:
        """Row of each node's parent, -1 at roots."""
        return shape.parent_rows(self.tree, self.id, self.source.numbers("parent", -1))

    @cached_property
    def length(self) -> Ints:
        """Number of actions of each node."""
        return self.source.numbers("length").astype(np.int64)

    @cached_property
    def trainable(self) -> Bools:
        """Whether a node's actions are the trained policy's own."""
        return self.source.numbers("trainable").astype(np.bool_)

    @cached_property
    def newest(self) -> int:
        """The current version of the weights; where nobody said, the newest that wrote anything here."""
        return int(self.flat("version")[0].max(initial=-1)) if self._version is None else self._version

    def is_(self, column: str, *values: str) -> Bools:
        """Which nodes have one of these words in a column."""
        codes, words = self._words(column)
        return np.isin(codes, [i for i, word in enumerate(words) if word in values])

    def starts(self, column: str, text: str) -> Bools:
        """Which nodes have a word in a column that starts so."""
        codes, words = self._words(column)
        return np.isin(codes, [i for i, word in enumerate(words) if word.startswith(text)])

    def score(self, name: str) -> Floats:
        """A named score per node; NaN where it was not given."""
        return self.source.scores(name)

    def flat(self, name: str) -> tuple[Array, Ints]:
        """A per-action column laid end to end with the rows' offsets."""
        return self.source.flat(name)

    def per_node(self, name: str, values: Array) -> Floats:
        """Per node, the sum of values that stand beside a flat per-action column."""
        at = self.flat(name)[1]
        return np.diff(np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])[at])

    def down(self, values: NDArray[Any]) -> NDArray[Any]:
        """Per node, the sum of a value over the path from its root to itself."""
        out = values.copy()
        for rows in self._levels[1:]:
            out[rows] += out[self.parent[rows]]
        return out

    def below(self, leaf_values: NDArray[Any]) -> Ints:
        """Per node, the sum of whole numbers over the leaves at or below it."""
        out = np.zeros(len(self.parent), np.int64)
        out[self.leaf] = leaf_values
        for rows in reversed(self._levels[1:]):
            np.add.at(out, self.parent[rows], out[rows])
        return out

    # -- leaves ----------------------------------------------------------------------------------------------------

    @cached_property
    def leaf(self) -> Ints:
        """Rows of the leaves."""
        bare = np.ones(len(self.parent), np.bool_)
        bare[self.parent[self.parent >= 0]] = False
        return np.flatnonzero(bare & (self.parent >= 0))

    @cached_property
    def leaf_tree(self) -> Ints:
        """Index of each leaf's tree."""
        return self.tree[self.leaf]

    @cached_property
    def reward(self) -> Floats:
        """What credit saw of each leaf: the outcome after shaping or voting."""
        return self.score("reward")[self.leaf]

    @cached_property
    def outcome(self) -> Floats:
        """What the verifier said of each leaf."""
        said = self.score("outcome")[self.leaf]
        return np.where(np.isnan(said), self.reward, said)

    @cached_property
    def judged(self) -> Bools:
        """Leaves that ended by themselves or at a limit, with an outcome."""
        return self.is_("status", "done")[self.leaf] & np.isfinite(self.reward)

    @cached_property
    def solved(self) -> Bools:
        """Judged leaves whose outcome counts as right."""
        said = self.score("solved")[self.leaf]
        return self.judged & (np.where(np.isnan(said), self.outcome, said) >= SOLVED)

    @cached_property
    def trained(self) -> Bools:
        """Leaves that were trained on; where nobody recorded fates, all judged ones."""
        said = self.is_("usage", "trained")[self.leaf]
        known = said.any() or self.starts("usage", "dropped")[self.leaf].any()
        return said if known else self.judged

    @cached_property
    def own(self) -> Ints:
        """Actions of the trained policy on the path to each leaf."""
        return self.down(self.length * self.trainable)[self.leaf]

    @cached_property
    def transcript(self) -> NDArray[np.uint64]:
        """A hash of everything after the prompt on each leaf's path, the same however runs were cut; who wrote what
        counts. Empty where actions are not tokens.
        """
        actions, at = self.flat("actions")
        if actions.dtype.kind not in "iu" or actions.ndim > 1 or not np.array_equal(np.diff(at), self.length):
            return np.zeros(0, np.uint64)
        begin = self.down(self.length) - self.length
        place = np.repeat(begin - at[:-1], self.length) + np.arange(len(actions))
        kind = np.repeat(self.is_("role", "env").astype(np.uint64) + np.uint64(1), self.length)
        word = _mixed(actions.astype(np.int64).view(np.uint64) * np.uint64(4) + kind)
        spread = word * _mixed(place.astype(np.uint64) + np.uint64(7))
        spread[np.repeat(self.is_("role", "prompt"), self.length)] = 0
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(spread, dtype=np.uint64)])
        return self.down(sums[at[1:]] - sums[at[:-1]])[self.leaf]

    def answers(self) -> list[str | None]:
        """The final answer of each leaf in normal form; None where none was given."""
        found = (notes.get("answer") for notes in self.source.notes(self.leaf))
        return [None if answer is None else str(answer) for answer in found]

    # -- prompts ---------------------------------------------------------------------------------------------------

    def count(self, leaves: Bools) -> Ints:
        """Per tree, how many of its leaves are among these."""
        return np.bincount(self.leaf_tree[leaves], minlength=len(self.source.ids))

    def spread(self, values: Floats, leaves: Bools) -> Floats:
        """Per tree, largest less smallest of a value over some leaves; NaN for trees without any."""
        high, low = np.full(len(self.source.ids), -np.inf), np.full(len(self.source.ids), np.inf)
        np.maximum.at(high, self.leaf_tree[leaves], values[leaves])
        np.minimum.at(low, self.leaf_tree[leaves], values[leaves])
        return np.where(np.isfinite(high), high - np.where(np.isfinite(low), low, 0), np.nan)

    def mean(self, values: NDArray[Any], leaves: Bools) -> Floats:
        """Per tree, the mean of a value over some leaves; NaN for trees without any."""
        total = np.bincount(self.leaf_tree[leaves], values[leaves], len(self.source.ids))
        count = self.count(leaves)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    @cached_property
    def _levels(self) -> list[Ints]:
        depth = shape.depths(self.parent)
        order = np.argsort(depth, kind="stable")
        at = offsets(np.bincount(depth)) if len(depth) else offsets([])
        return [order[a:b] for a, b in pairwise(at.tolist())]

    def _words(self, column: str) -> tuple[Ints, list[str]]:
        held = self.__dict__.setdefault("_coded", {})
        if column not in held:
            held[column] = self.source.words(column)
        return held[column]


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bits of whole numbers stirred (the finaliser of splitmix64), so that sums of products hardly ever collide."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
