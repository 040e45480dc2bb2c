"""A forest: the trees of one step or one job, and the account of what became of their leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rolltree.tree.node import Array, Node
from rolltree.tree.tree import Tree, TreeError


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
