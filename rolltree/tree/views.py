"""What a path looks like laid end to end, and what a tree's shape says about the rollout that made it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.node import ROLES, Array, FloatArray, Node, join_actions
from rolltree.tree.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The actions from the root to the end of a node with what is known of each: what a flat trainer would see."""

    nodes: tuple[Node, ...]
    actions: Array
    logp: FloatArray
    """NaN where a node has none; so are `sampling_logprob` and `entropy`."""
    sampling_logprob: FloatArray
    entropy: FloatArray
    version: NDArray[np.int32]
    """-1 where no weights wrote the action."""
    role: NDArray[np.uint8]
    """Index into `ROLES`, per action."""
    loss_mask: NDArray[np.bool_]
    """Actions of trained nodes that `keep` does not mask."""
    path_ends: NDArray[np.int64]
    """Offset of the end of each node; the actions of node i are path_ends[i-1]:path_ends[i]."""

    def __len__(self) -> int:
        return len(self.actions)


def path_view(tree: Tree, leaf: Node | int) -> Path:
    """The view of the path to a leaf (or to the end of any node)."""
    nodes = tree.path(leaf)
    lengths = [len(n) for n in nodes]
    total = sum(lengths)
    return Path(
        nodes=tuple(nodes),
        actions=join_actions([n.actions for n in nodes]),
        logp=_joined(nodes, "logp", total, np.nan, np.float32),
        sampling_logprob=_joined(nodes, "sampling_logprob", total, np.nan, np.float32),
        entropy=_joined(nodes, "entropy", total, np.nan, np.float32),
        version=_joined(nodes, "version", total, -1, np.int32),
        role=np.repeat(np.array([ROLES.index(n.role) for n in nodes], np.uint8), lengths),
        loss_mask=np.repeat([n.trainable for n in nodes], lengths) & _joined(nodes, "keep", total, True, np.bool_),
        path_ends=np.cumsum(lengths, dtype=np.int64),
    )


def policy_turns(path: Sequence[Node]) -> list[list[Node]]:
    """The policy's runs on a path: a list behind each word of the environment or prompt, empty where none followed."""
    turns: list[list[Node]] = [[]]
    for node in path:
        if node.role in ("env", "prompt"):
            turns.append([])
        elif node.role == "policy":
            turns[-1].append(node)
    return turns


def path_views(tree: Tree) -> list[Path]:
    """The view of every leaf, depth first."""
    return [path_view(tree, leaf) for leaf in tree.leaves()]


def sharing_ratio(tree: Tree) -> float:
    """Policy actions in the tree over policy actions on all paths: 1 = nothing shared; 1 also where there are none."""
    own, on_paths = 0, 0
    for node, leaves in leaf_counts(tree).items():
        count = len(tree[node]) if tree[node].role == "policy" else 0
        own += count
        on_paths += count * leaves
    return own / on_paths if on_paths else 1.0


def effective_branches(tree: Tree, node: Node | None = None) -> float:
    """exp(entropy of the leaf counts) over the children of a node (the root): far below the children = collapse."""
    counts = leaf_counts(tree)
    below = [counts[c] for c in (tree.root if node is None else node).children]
    total = sum(below)
    return math.exp(-sum(c / total * math.log(c / total) for c in below)) if total else 0.0


def leaf_counts(tree: Tree) -> dict[int, int]:
    """Number of leaves at or below each node."""
    counts: dict[int, int] = {}
    for node in reversed(list(tree.walk())):
        counts[node.id] = sum(counts[c] for c in node.children) if node.children else 1
    return counts


@dataclass(frozen=True, slots=True)
class TreeMetrics:
    """What every recipe that grows trees reports of one tree."""

    leaves: int
    """Leaves obtained (a prompt nothing grew from has none)."""
    asked: int
    """Leaves asked for, as the caller knows it; `leaves` unless given."""
    duplicated: int
    """Leaves whose whole path repeats another leaf's: they poison group statistics."""
    answers: int
    """Distinct final answers (`notes["answer"]`) over the leaves that have one."""
    decoded: int
    """Policy actions in the tree, each prefix once, those of pruned and failed nodes included."""
    sharing_ratio: float
    effective_branches: float
    births: Mapping[str, int]
    """Forks (nodes with siblings) by birth."""
    prunes: Mapping[str, int]
    """Nodes pruned by reason."""
    depths: Mapping[int, int]
    """Leaves by number of nodes above them."""
    without_sampling_logprob: float
    """Share of leaves with a trained, unforced action whose behaviour log-prob is missing or NaN."""


def metrics(tree: Tree, *, asked: int | None = None) -> TreeMetrics:
    """The metrics of one tree; a pure function of its nodes and events."""
    leaves = [n for n in tree.leaves() if n.parent is not None]
    paths = [tree.path(n) for n in leaves]
    nodes = list(tree)
    distinct = {_fingerprint(p) for p in paths}
    known = [a for n in leaves if (a := n.notes.get("answer")) is not None]
    prunes: Counter[str] = Counter()
    for event in tree.events:
        if event.kind == "prune":
            prunes[event.why] += int(event.numbers.get("nodes", 1))
    invalid = sum(any(_lacks_sampling_logprob(n) for n in p) for p in paths)
    return TreeMetrics(
        leaves=len(leaves),
        asked=len(leaves) if asked is None else asked,
        duplicated=len(paths) - len(distinct),
        answers=len({str(a) for a in known}),
        decoded=sum(len(n) for n in nodes if n.role == "policy"),
        sharing_ratio=sharing_ratio(tree),
        effective_branches=effective_branches(tree),
        births=Counter(n.birth for n in nodes if n.parent is not None and len(tree[n.parent].children) > 1),
        prunes=prunes,
        depths=Counter(len(p) - 1 for p in paths),
        without_sampling_logprob=invalid / len(leaves) if leaves else 0.0,
    )


def _joined(nodes: list[Node], name: str, total: int, fill: Any, dtype: Any) -> NDArray[Any]:
    out = np.full(total, fill, dtype)
    at = 0
    for node in nodes:
        array = getattr(node, name)
        if array is not None:
            out[at : at + len(node)] = array
        at += len(node)
    return out


def _fingerprint(path: list[Node]) -> tuple[bytes, ...]:
    # Runs of one role and shape are joined, so that a cut does not make equal paths look different.
    out: list[tuple[str, bytearray]] = []
    for n in path:
        kind = f"{n.role} {n.actions.dtype} {n.actions.shape[1:]}"
        if not out or out[-1][0] != kind:
            out.append((kind, bytearray()))
        out[-1][1].extend(n.actions.tobytes())
    return tuple(kind.encode() + bytes(data) for kind, data in out if data)


def _lacks_sampling_logprob(n: Node) -> bool:
    if not (n.trainable and len(n)) or n.forced:
        return False
    return n.sampling_logprob is None or bool(np.isnan(n.sampling_logprob).any())
