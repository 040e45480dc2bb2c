"""Guessed continuations of a text as a tree, and the trees of a batch side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.policy.decoder import Decoder, TokenTree
from rolltree.policy.shared import Shared
from rolltree.policy.slab import Slab

Ints = NDArray[np.int64]


class Guess(NamedTuple):
    """A next token and an estimate of the probability that it is the right one."""

    token: int
    chance: float


@dataclass(slots=True)
class DraftTree:
    """Guesses after one text. Node 0 is the text's last token; a parent stands before its children."""

    tokens: list[int] = field(default_factory=lambda: [-1])
    parents: list[int] = field(default_factory=lambda: [-1])
    depths: list[int] = field(default_factory=lambda: [0])
    chances: list[float] = field(default_factory=lambda: [1.0])
    """Estimated probability that the whole path to a node is right."""

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, guess: Guess) -> int:
        """A new node below a parent; its number."""
        self.tokens.append(guess.token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.chances.append(self.chances[parent] * guess.chance)
        return len(self) - 1

    def path(self, node: int) -> tuple[int, ...]:
        """Guessed tokens from the text to a node, itself included."""
        out = list[int]()
        while node:
            out.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(out))


@dataclass(frozen=True)
class Drafts:
    """The trees of a batch, padded on the right. Column i is node i + 1; padding hangs below node 0."""

    tokens: Ints
    """(rows, widest)."""
    parents: Ints
    count: Ints
    """How many of each row are guesses."""
    depth: Ints
    """(rows, 1 + widest), node 0 included."""

    @classmethod
    def of(cls, trees: Sequence[DraftTree]) -> Drafts | None:
        """Side by side; None where nothing is guessed."""
        widest = max((len(tree) for tree in trees), default=1) - 1
        if not widest:
            return None
        rows = len(trees)
        tokens, parents = np.zeros((rows, widest), np.int64), np.zeros((rows, widest), np.int64)
        depth = np.ones((rows, 1 + widest), np.int64)
        count = np.array([len(tree) - 1 for tree in trees], np.int64)
        for row, tree in enumerate(trees):
            n = len(tree)
            tokens[row, : n - 1], parents[row, : n - 1], depth[row, :n] = tree.tokens[1:], tree.parents[1:], tree.depths
        return cls(tokens, parents, count, depth)

    @cached_property
    def chains(self) -> bool:
        """Whether every guess follows the one before it, so that a plain causal forward reads them."""
        real = np.arange(self.tokens.shape[1]) < self.count[:, None]
        return bool((self.parents == np.arange(self.tokens.shape[1]))[real].all())

    @cached_property
    def ancestors(self) -> NDArray[np.bool_]:
        """(rows, node, node): which nodes each one follows, itself included."""
        rows, widest = self.tokens.shape
        out = np.zeros((rows, 1 + widest, 1 + widest), np.bool_)
        out[:, 0, 0] = True
        every = np.arange(rows)
        for i in range(widest):
            out[:, i + 1] = out[every, self.parents[:, i]]
            out[:, i + 1, i + 1] = True
        return out

    @cached_property
    def _children(self) -> dict[tuple[int, int, int], int]:
        return {
            (row, int(self.parents[row, i]), int(self.tokens[row, i])): i + 1
            for row, n in enumerate(self.count.tolist())
            for i in range(n)
        }

    def child(self, row: int, node: int, token: int) -> int:
        """The guess of a token after a node; 0 where it was not guessed."""
        return self._children.get((row, node, token), 0)

    @property
    def deepest(self) -> int:
        """Tokens that would have been won had all guesses been right, over all rows."""
        real = np.arange(self.depth.shape[1]) <= self.count[:, None]
        return int((self.depth * real).max(1).sum())


# Reading the guesses of a batch in one forward pass, and where accepted ones come to stand.


def read(
    decoder: Decoder, slab: Slab, last: Ints, at: Ints, drafts: Drafts | None, shared: Shared | None = None
) -> Tensor:
    """Last hidden states (rows, 1 + widest guess, hidden) at the last tokens, in columns `at`, and at the guesses."""
    ids, device = last[:, None], decoder.device
    if drafts is not None:
        ids = np.concatenate([ids, drafts.tokens], 1)
    sent = torch.from_numpy(np.concatenate([ids, at[:, None]], 1)).to(device)
    branches = None if drafts is None or drafts.chains else _branches(drafts, at, slab.capacity, device)
    return decoder.extend(sent[:, :-1], sent[:, -1], slab, slab.capacity, branches, shared)


def settle(slab: Slab, at: Ints, paths: list[list[int]]) -> None:
    """Move keys and values of accepted nodes behind their texts, whose last tokens stand in columns `at`."""
    moves = [
        (row, int(at[row]) + node, int(at[row]) + place)
        for row, path in enumerate(paths)
        for place, node in enumerate(path, 1)
        if node != place
    ]
    if moves:
        rows, source, target = torch.tensor(moves, device=slab.keys[0].device).T
        slab.move_columns(rows, source, target)


def _branches(drafts: Drafts, at: Ints, reach: int, device: torch.device) -> TokenTree:
    """Each node sees its row's text and the nodes that it follows, itself included; its position is its depth."""
    rows, nodes = drafts.depth.shape
    # One column more, where those land for which there is no room; they are padding.
    seen = np.broadcast_to(np.arange(reach + 1) < at[:, None, None], (rows, nodes, reach + 1)).copy()
    columns = np.minimum(at[:, None] + np.arange(nodes), reach)
    np.put_along_axis(seen, np.broadcast_to(columns[:, None], (rows, nodes, nodes)), drafts.ancestors, 2)
    positions = at[:, None] + drafts.depth
    return TokenTree(torch.from_numpy(positions).to(device), torch.from_numpy(seen[:, :, :reach].copy()).to(device))
