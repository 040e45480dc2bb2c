"""A rollout tree as a part of a page: what was written from fork to fork, and how many leaves below were right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rolltree.tree import Node, Tree
from rolltree.tree.node import Array, is_solved
from rolltree.tree.store.parquet import load, parts

MOST_NODES = 600
"""A larger tree is for the viewer."""
REASONS = ("fork", "prune", "fail", "allocate", "select", "splice", "graft")


@dataclass(frozen=True)
class ReportBranch:
    """A run of nodes from one fork to the next."""

    words: tuple[tuple[str, str], ...]
    """Who wrote (policy, env, …) and what, in order."""
    right: int
    """Leaves below that count as right."""
    leaves: int
    end: str = ""
    """Why it ended, of a leaf."""
    reasons: tuple[str, ...] = ()
    """What was decided here, in words."""
    below: tuple[ReportBranch, ...] = ()


@dataclass(frozen=True)
class ReportTree:
    """One tree of a page."""

    title: str
    note: str
    root: ReportBranch


def chosen_tree(folders: Iterable[str], decode: Callable[[Array], str], who: str) -> ReportTree | None:
    """Of the last saved forests of runs, the tree that says most: forks below its root, leaves right and wrong."""
    best: tuple[tuple[float, ...], Tree, int] | None = None
    for folder in folders:
        saved = [(step, place) for step, place in parts(Path(folder) / "forests") if step is not None]
        for step, place in saved[-1:]:
            for tree in load(place):
                worth = _worth(tree)
                if worth is not None and (best is None or worth > best[0]):
                    best = (worth, tree, step)
    if best is None:
        return None
    _, tree, step = best
    leaves = len(tree.leaves())
    return ReportTree(
        f"A tree that {who} grew at step {step}",
        f"{leaves} leaves, {len(_forks(tree))} forks. Press a branch to close or open it; what the environment "
        "answered is marked ⟵.",
        branch_of(tree, tree.root, decode),
    )


def branch_of(tree: Tree, node: Node, decode: Callable[[Array], str]) -> ReportBranch:
    """A node with all that follows it, as far as nothing forks, and the branches below."""
    run = [node]
    while len(run[-1].children) == 1:
        run.append(tree[run[-1].children[0]])
    below = tuple(branch_of(tree, child, decode) for child in tree.children(run[-1]))
    last, ids = run[-1], {one.id for one in run}
    said = (f"{e.kind}: {e.why}" for e in tree.events if e.node in ids and e.kind in REASONS and e.why)
    return ReportBranch(
        tuple((one.role, decode(one.actions)) for one in run),
        sum(b.right for b in below) if below else int("reward" in last.scores and is_solved(last.scores)),
        sum(b.leaves for b in below) if below else 1,
        "" if below else str(last.finish or last.status),
        tuple(dict.fromkeys(said)),
        below,
    )


def _forks(tree: Tree) -> list[Node]:
    return [node for node in tree.walk() if len(node.children) > 1]


def _worth(tree: Tree) -> tuple[float, ...] | None:
    """How much a tree shows; None for one that forks only at its root, or is too large for a page."""
    inner = sum(node.parent is not None for node in _forks(tree))
    if not inner or len(tree) > MOST_NODES:
        return None
    return float(_sides(tree)), float(inner), -float(len(tree))


def _sides(tree: Tree) -> int:
    """Forks below the root whose leaves are right on one side and wrong on another."""
    rate: dict[int, float] = {}
    nodes: Sequence[Node] = list(tree.walk())
    count = 0
    for node in reversed(nodes):
        if not node.children:
            rate[node.id] = float("reward" in node.scores and is_solved(node.scores))
            continue
        rates = [rate[child] for child in node.children]
        rate[node.id] = sum(rates) / len(rates)
        count += node.parent is not None and max(rates) - min(rates) > 0
    return count
