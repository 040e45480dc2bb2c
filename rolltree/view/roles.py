"""What roles said about a tree (judges, writers of notes), and which nodes were in sight when another was written.

A role answers in a side tree of the same forest, which notes who speaks and about which nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from rolltree.analysis.text import Pieces
from rolltree.generate.roles import ABOUT, ROLE
from rolltree.tree.references import REFERENCES
from rolltree.tree.store.archive import Archive

TEXT = 160
"""Characters of a role's answer in a list; its tree has all of it."""


@dataclass(frozen=True, slots=True)
class RoleTree:
    """A side tree: who was asked there, and about which nodes of which trees."""

    id: str
    role: str
    about: tuple[tuple[str, int], ...]


def role_trees(archive: Archive) -> list[RoleTree]:
    """The side trees of a forest."""
    out: list[RoleTree] = []
    for (_, id), notes in zip(archive.trees, archive.tree_notes(), strict=True):
        if isinstance(role := notes.get(ROLE), str):
            out.append(RoleTree(id, role, tuple(_places(notes.get(ABOUT)))))
    return out


def asked_about(trees: Sequence[RoleTree], tree: str, node: int | None = None) -> list[RoleTree]:
    """Those that were asked about one of a tree's nodes; without a node all that belong to the tree."""
    if node is None:
        return [t for t in trees if t.id.startswith(f"{tree}/")]
    return [t for t in trees if (tree, node) in t.about]


def summary(trees: Sequence[RoleTree]) -> str:
    """How often each role was asked, in a line; "" for none."""
    counts = Counter(t.role for t in trees)
    return ", ".join(f"{role} {count}" for role, count in sorted(counts.items()))


def answers(archive: Archive, tree: str, pieces: Pieces) -> list[str]:
    """What a role said, answer by answer, cut short."""
    grown = archive.tree(tree)
    texts = [
        "".join(pieces.text(n.actions) for n in grown.path(leaf) if n.role == "policy").strip()
        for leaf in grown.leaves() if leaf.role == "policy"
    ]  # fmt: skip
    return [text if len(text) <= TEXT else text[:TEXT] + "…" for text in texts]


def in_sight(notes: dict[str, Any]) -> list[int]:
    """Ids of the nodes that one was written with in sight, beside its parent."""
    given = notes.get(REFERENCES, ())
    return [int(i) for i in cast("Sequence[Any]", given)] if isinstance(given, Sequence) else []


def _places(told: Any) -> list[tuple[str, int]]:
    out: list[tuple[str, int]] = []
    for place in cast("Sequence[Any]", told) if isinstance(told, list) else ():
        tree, slash, node = str(place).rpartition("/")
        if slash and node.isdigit():
            out.append((tree, int(node)))
    return out
