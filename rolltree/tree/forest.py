"""A forest: the trees of one step or one job, and the account of what became of their leaves.

Conservation: every leaf that was submitted ends as trained, kept, dropped with a reason, or is still running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rolltree.tree.node import Array, Node, TreeError
from rolltree.tree.tree import Tree


class Forest:
    """Trees by id, in order of creation."""

    def __init__(self, trees: Sequence[Tree] = ()) -> None:
        self._trees: dict[str, Tree] = {}
        for tree in trees:
            self.add(tree)

    def add(self, tree: Tree) -> Tree:
        """Add a tree; two trees of a forest never share an id."""
        if tree.id in self._trees:
            raise TreeError(f"the forest already has a tree {tree.id!r}; give the new one another id")
        self._trees[tree.id] = tree
        return tree

    def plant(self, id: str, prompt: Sequence[int] | Array, *, task: str = "", item: str = "") -> Tree:
        """Start a new tree from a prompt."""
        return self.add(Tree(id, prompt, task=task, item=item))

    def __getitem__(self, id: str) -> Tree:
        try:
            return self._trees[id]
        except KeyError:
            raise TreeError(f"the forest has no tree {id!r}") from None

    def __contains__(self, id: object) -> bool:
        return id in self._trees

    def __iter__(self) -> Iterator[Tree]:
        return iter(self._trees.values())

    def __len__(self) -> int:
        return len(self._trees)

    def leaves(self) -> Iterator[tuple[Tree, Node]]:
        """Every leaf with its tree."""
        for tree in self:
            for leaf in tree.leaves():
                yield tree, leaf

    def nodes(self) -> Iterator[tuple[Tree, Node]]:
        """Every node with its tree, parents before children."""
        for tree in self:
            for node in tree:
                yield tree, node


DROPPED = "dropped: "
_BY_STATUS = {"open": "running", "paused": "running", "done": "kept"}


class AccountError(TreeError):
    """Leaves were lost, or left the forest without a reason; names the first of them."""


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the leaves of a forest."""

    trained: int = 0
    kept: int = 0
    """Finished and still there to be used."""
    running: int = 0
    """Open or paused."""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Leaves by the reason for which they will not be trained on: pruned, failed or filtered out."""
    unexplained: tuple[str, ...] = ()
    """Leaves that are pruned, failed or dropped without a reason, and nodes no path from a root reaches."""

    @property
    def leaves(self) -> int:
        """All leaves, whatever became of them."""
        return self.trained + self.kept + self.running + sum(self.dropped.values()) + len(self.unexplained)

    def __add__(self, other: Account) -> Account:
        return Account(
            self.trained + other.trained, self.kept + other.kept, self.running + other.running,
            Counter(self.dropped) + Counter(other.dropped), self.unexplained + other.unexplained,
        )  # fmt: skip


def account(forest: Iterable[Tree]) -> Account:
    """Count what became of every leaf. A prompt from which nothing grew is a leaf too: it was submitted."""
    ends: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    unexplained: list[str] = []
    for tree in forest:
        reasons = _reasons(tree)
        reached: set[int] = set()
        for node in tree.walk():
            reached.add(node.id)
            if node.children:
                continue
            end, reason = _end(node, reasons)
            if end == "dropped":
                dropped[reason] += 1
            elif end == "unexplained":
                unexplained.append(f"leaf {node.id} of tree {tree.id!r} {reason}")
            else:
                ends[end] += 1
        lost = sorted(tree.nodes.keys() - reached)
        unexplained += [f"node {n} of tree {tree.id!r} cannot be reached from its root" for n in lost]
    return Account(ends["trained"], ends["kept"], ends["running"], dict(dropped), tuple(unexplained))


def assert_conserved(forest: Iterable[Tree], *, submitted: int | None = None, settled: bool = False) -> Account:
    """Raise unless every leaf is accounted for; returns the account.

    `submitted` is the number of leaves an independent ledger handed out; `settled` says that nothing may still run.
    """
    found = account(forest)
    if found.unexplained:
        more = len(found.unexplained) - 1
        raise AccountError(f"{found.unexplained[0]}" + (f" (and {more} more like it)" if more else ""))
    if submitted is not None and submitted != found.leaves:
        raise AccountError(f"{submitted} leaves were submitted, but the forest holds {found.leaves}: {_said(found)}")
    if settled and found.running:
        raise AccountError(
            f"{found.running} leaves are still open or paused where all should have ended: {_said(found)}"
        )
    return found


def _reasons(tree: Tree) -> dict[int, str]:
    """Why each node was pruned or failed, as the events say; a prune reaches every node below, a copy was so before."""
    out: dict[int, str] = {}
    for event in tree.events:
        if event.node is None or event.node not in tree.nodes:
            continue
        if event.kind == "prune" and event.why:
            # The first prune is the one that took effect on a node.
            for node in tree.walk(event.node):
                out.setdefault(node.id, event.why)
        elif event.kind == "fail" and event.why:
            out[event.node] = event.why
        elif event.kind in ("graft", "splice"):
            for node in tree.walk(event.node):
                out.setdefault(node.id, f"before the {event.kind}")
    return out


def _end(node: Node, reasons: Mapping[int, str]) -> tuple[str, str]:
    if node.usage.startswith(DROPPED) and len(node.usage) > len(DROPPED):
        return "dropped", node.usage.removeprefix(DROPPED)
    if node.usage not in ("", "trained"):
        return "unexplained", f"has the usage {node.usage!r}, which is neither 'trained' nor 'dropped: reason'"
    plain = node.usage or _BY_STATUS.get(node.status)
    if plain is not None:
        return plain, ""
    why = reasons.get(node.id, node.finish if node.status == "failed" else None)
    if why is None:
        return "unexplained", f"is {node.status}, but no event says why; use Tree.prune or Tree.close"
    return "dropped", f"{node.status}: {why}"


def _said(found: Account) -> str:
    dropped = sum(found.dropped.values())
    return f"{found.trained} trained, {found.kept} kept, {dropped} dropped, {found.running} running"
