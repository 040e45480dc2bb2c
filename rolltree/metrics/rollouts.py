"""Rollouts of one step as columns over nodes and leaves: what every metric and the doctor compute on.

Nothing here walks objects, so a forest of a million nodes takes seconds. Rows are nodes; leaves are rows without
children, a prompt from which nothing grew left out.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.node import SOLVED, Array
from rolltree.tree.shape import Bools, Floats, Ints, Shape
from rolltree.tree.source import TreeColumns

SAME = 1e-9
"""Outcomes that differ by no more are the same."""
Numbers = dict[str, float]


class Rollouts:
    """The leaves of some trees, in memory or in files, and what is known of them.

    `version` is the weights' current version, where it is known.
    """

    def __init__(self, source: TreeColumns, version: int | None = None) -> None:
        self.source = source
        self.shape = source.shape
        self._version = version

    # -- nodes -----------------------------------------------------------------------------------------------------

    @property
    def tree(self) -> Ints:
        """Index of each node's tree."""
        return self.shape.tree

    @property
    def parent(self) -> Ints:
        """Row of each node's parent, -1 at roots."""
        return self.shape.parent

    @cached_property
    def id(self) -> Ints:
        """Id of each node within its tree."""
        return self.source.numbers("id").astype(np.int64)

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
        return int(self.ragged("version")[0].max(initial=-1)) if self._version is None else self._version

    def is_(self, column: str, *values: str) -> Bools:
        """Which nodes have one of these words in a column."""
        codes, words = self._words(column)
        return np.isin(codes, [i for i, word in enumerate(words) if word in values])

    def starts(self, column: str, text: str) -> Bools:
        """Which nodes have a word in a column that starts so."""
        codes, words = self._words(column)
        return np.isin(codes, [i for i, word in enumerate(words) if word.startswith(text)])

    def words_of(self, column: str, rows: Bools) -> dict[str, int]:
        """How many of some nodes have each word of a column."""
        codes, words = self._words(column)
        counts = np.bincount(codes[rows & (codes >= 0)], minlength=len(words))
        return {word: int(count) for word, count in zip(words, counts, strict=True) if count}

    def score(self, name: str) -> Floats:
        """A named score per node; NaN where it was not given."""
        return self.source.scores(name)

    def ragged(self, name: str) -> tuple[Array, Ints]:
        """A per-action column laid end to end with the rows' offsets."""
        held = self.__dict__.setdefault("_ragged", {})
        if name not in held:
            held[name] = self.source.ragged(name)
        return held[name]

    def dense(self, name: str, fill: float) -> Floats:
        """A per-action column over the actions of every node; `fill` where a node has none."""
        values, at = self.ragged(name)
        out = np.full(int(self.length.sum()), fill, np.float64)
        out[np.repeat(np.diff(at) > 0, self.length)] = values
        return out

    def per_node(self, name: str, values: Array) -> Floats:
        """Per node, the sum of values that stand beside a per-action column."""
        at = self.ragged(name)[1]
        return np.diff(np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])[at])

    def below(self, leaves: NDArray[Any]) -> Ints:
        """Per node, how many of some leaves are at or below it."""
        padded = np.zeros(len(self.shape.leaf), np.int64)
        padded[self._grown] = leaves
        return self.shape.below(padded).astype(np.int64)

    # -- leaves ----------------------------------------------------------------------------------------------------

    @cached_property
    def _grown(self) -> Bools:
        return self.parent[self.shape.leaf] >= 0

    @cached_property
    def leaf(self) -> Ints:
        """Rows of the leaves."""
        return self.shape.leaf[self._grown]

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
    def wrong(self) -> Bools:
        """Judged leaves that are not right."""
        return self.judged & ~self.solved

    @cached_property
    def trained(self) -> Bools:
        """Leaves that were trained on; where nobody recorded what became of them, all judged ones."""
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
        actions, at = self.ragged("actions")
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

    @cached_property
    def answer(self) -> Ints:
        """The final answer of each leaf in normal form, as a number; -1 where none was given."""
        code: dict[str, int] = {}
        said = (notes.get("answer") for notes in self.source.notes(self.leaf))
        return np.array([-1 if a is None else code.setdefault(str(a), len(code)) for a in said], np.int64)

    # -- prompts ---------------------------------------------------------------------------------------------------

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self.source.ids)

    @cached_property
    def all(self) -> Bools:
        """Every leaf."""
        return np.ones(len(self.leaf), np.bool_)

    def count(self, leaves: Bools) -> Ints:
        """Per tree, how many of its leaves are among these."""
        return np.bincount(self.leaf_tree[leaves], minlength=self.trees)

    def spread(self, values: Floats, leaves: Bools) -> Floats:
        """Per tree, largest less smallest of a value over some leaves; NaN for trees without any."""
        high, low = np.full(self.trees, -np.inf), np.full(self.trees, np.inf)
        np.maximum.at(high, self.leaf_tree[leaves], values[leaves])
        np.minimum.at(low, self.leaf_tree[leaves], values[leaves])
        return np.where(np.isfinite(high), high - np.where(np.isfinite(low), low, 0), np.nan)

    def mean(self, values: NDArray[Any], leaves: Bools) -> Floats:
        """Per tree, the mean of a value over some leaves; NaN for trees without any."""
        total = np.bincount(self.leaf_tree[leaves], values[leaves], self.trees)
        count = self.count(leaves)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def down(self, values: NDArray[Any]) -> NDArray[Any]:
        """Per node, the sum of a value over the path from its root to itself, in the value's own type.

        Hashes wrap around, and no float holds them.
        """
        return Shape.down(self.shape, values)

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
