"""Streams of randomness that depend on names, never on order.

A stream is a key; children are derived by hashing names into it. What a rollout draws is then a function of (run seed,
task, tree, lineage of the node) alone: the same seed grows the same forest, whatever else is in the batch.

The lineage of a node is structural and survives `cut`: a run started at a parent's end as its i-th child keeps its
name, and a node is addressed by (run, position of its end). Copies (grafts, splices) get names of their own, so that
two copies of one branch do not continue alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from rolltree.tree import Node, Tree

Name = str | int

MARK = "rng"
"""Key in a node's notes: [node id, run]. The id tells an original from a copy."""


def mix(*names: Name) -> int:
    """Hash names into 63 bits."""
    return int.from_bytes(blake2b(repr(names).encode(), digest_size=8).digest()) >> 1


@dataclass(frozen=True, slots=True)
class Stream:
    """A source of randomness addressed by name. Immutable: reading it twice gives the same numbers twice."""

    key: int

    def child(self, *names: Name) -> Stream:
        """The stream of that name below this one, independent of all others."""
        return Stream(mix(self.key, *names))

    @property
    def seed(self) -> int:
        """A 63-bit seed for an engine's request or any other generator."""
        return self.key

    def generator(self) -> np.random.Generator:
        """A fresh numpy generator at the start of this stream."""
        return np.random.default_rng(self.key)

    def uniform(self, *names: Name) -> float:
        """One number in [0, 1) for this name."""
        return mix(self.key, "uniform", *names) / 2**63


def lineage(tree: Tree, node: Node) -> int:
    """The run a node belongs to; nodes that did not come from a hand are named by their place below the parent."""
    if node.parent is None:
        return 0
    mark = node.notes.get(MARK)
    if mark is not None and mark[0] == node.id:
        return int(mark[1])
    above = tree[node.parent]
    run = mix(lineage(tree, above), "adopted", above.children.index(node.id))
    return tag_rng(node, run)


def tag_rng(node: Node, run: int) -> int:
    """Write down which run a node belongs to."""
    node.notes[MARK] = [node.id, run]
    return run


def next_run(tree: Tree, parent: Node, end: int) -> int:
    """Name of the next run started at the end of `parent`, which is `end` actions from the start."""
    return mix(lineage(tree, parent), end, len(parent.children))
