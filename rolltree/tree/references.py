"""Reference edges: other nodes that were read when a node was written, beside its parent.

They stand in the node's notes as ids, so every store and every program keeps them. They are context only: no credit and
no backup goes along them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rolltree.tree.node import Node

if TYPE_CHECKING:
    from rolltree.tree.tree import Tree

REFERENCES = "references"
"""Key in a node's notes: ids of the nodes it was written with in sight."""


def refer(node: Node, others: Iterable[Node]) -> None:
    """Note what a node was written with in sight; nothing where there is nothing to note."""
    ids = list(dict.fromkeys(other.id for other in others))
    if ids:
        node.notes[REFERENCES] = ids


def references(tree: Tree, node: Node) -> list[Node]:
    """The nodes that one was written with in sight; those that left the tree are left out."""
    return [tree[i] for i in node.notes.get(REFERENCES, ()) if i in tree.nodes]


def moved(nodes: Iterable[Node], ids: Mapping[int, int]) -> None:
    """References after nodes were copied or moved to other ids; those to nodes that did not come along are dropped."""
    for node in nodes:
        if REFERENCES in node.notes:
            kept = [ids[i] for i in node.notes[REFERENCES] if i in ids]
            node.notes.pop(REFERENCES)
            if kept:
                node.notes[REFERENCES] = kept
