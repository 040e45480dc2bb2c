"""What can be asked of trees as columns, wherever they are: in memory (`Table`) or in files (`Archive`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rolltree.tree.node import Array
from rolltree.tree.shape import Floats, Ints, Shape
from rolltree.tree.store.values import loads

Notes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The events of some trees as columns, in order within each tree."""

    tree: Ints
    """Index of the tree."""
    node: Ints
    """Id of the node; -1 where the event is about the whole tree."""
    kind: Sequence[str]
    why: Sequence[str]
    at: Floats
    numbers: Sequence[Any]
    """Mappings, or their stored JSON, or None; `numbers_of` reads either."""

    def __len__(self) -> int:
        return len(self.kind)

    def numbers_of(self, index: int) -> Mapping[str, Any]:
        """The numbers behind one event."""
        found = self.numbers[index]
        return {} if found is None else loads(found) if isinstance(found, str) else found


class TreeColumns(Protocol):
    """Columns over the nodes of some trees, depth first, tree after tree."""

    @property
    def shape(self) -> Shape:
        """Rows of parents, subtrees and leaves."""
        ...

    @property
    def ids(self) -> Sequence[str]:
        """Names of the trees."""
        ...

    def numbers(self, name: str, missing: Any = None) -> Array:
        """A column of numbers or truth values; `length` is the number of actions."""
        ...

    def words(self, name: str) -> tuple[Ints, list[str]]:
        """A column of words as codes (-1 where there is none) and the words."""
        ...

    def scores(self, name: str) -> Floats:
        """A named score; NaN where it was not given."""
        ...

    def score_names(self) -> set[str]:
        """Names of all scores given anywhere."""
        ...

    def ragged(self, name: str) -> tuple[Array, Ints]:
        """A per-action column laid end to end, and the rows' offsets; a node without it has no entries."""
        ...

    def notes(self, rows: Ints) -> Iterator[Notes]:
        """The notes of some nodes."""
        ...

    def tree_notes(self) -> Iterator[Notes]:
        """The notes of every tree."""
        ...

    def events(self) -> EventColumns:
        """All events; none where the format keeps none."""
        ...
