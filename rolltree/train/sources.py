"""Where the columns of rollouts come from: trees in memory, or one saved forest whose columns are read when touched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from rolltree.tree import Node, Tree
from rolltree.tree.archive import open_forest
from rolltree.tree.node import Array
from rolltree.tree.parquet import open_file, readable
from rolltree.tree.shape import offsets
from rolltree.tree.table import Floats, Ints
from rolltree.tree.values import loads

Notes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a forest as columns, in order within each tree."""

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


class Source(Protocol):
    """Columns over the nodes of some trees, depth first, tree after tree."""

    @property
    def ids(self) -> Sequence[str]:
        """Names of the trees."""
        ...

    @property
    def items(self) -> Sequence[str]:
        """The task's item behind each tree."""
        ...

    @property
    def sizes(self) -> Ints:
        """Nodes of each tree."""
        ...

    def numbers(self, name: str, missing: Any = None) -> Array:
        """A column of numbers or truth values."""
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

    def flat(self, name: str) -> tuple[Array, Ints]:
        """A per-action column laid end to end, and the rows' offsets; a node without it has no entries."""
        ...

    def notes(self, rows: Ints) -> Iterator[Notes]:
        """The notes of some nodes."""
        ...

    def events(self) -> Events:
        """All events; none where the format keeps none."""
        ...


class Held:
    """Trees that stand in memory."""

    def __init__(self, trees: Sequence[Tree]) -> None:
        self._trees = trees
        self._nodes: list[Node] = [n for t in trees for n in t.walk()]
        self.ids = [t.id for t in trees]
        self.items = [t.item for t in trees]
        self.sizes: Ints = np.array([len(t) for t in trees], np.int64)

    def numbers(self, name: str, missing: Any = None) -> Array:
        """A column of numbers or truth values; `length` is the number of actions."""
        if name == "length":
            return np.array([len(n.actions) for n in self._nodes], np.int64)
        found = (getattr(n, name) for n in self._nodes)
        return np.array([missing if v is None else v for v in found], np.bool_ if name == "trainable" else np.int64)

    def words(self, name: str) -> tuple[Ints, list[str]]:
        """A column of words as codes and words."""
        code: dict[str, int] = {}
        found = (getattr(n, name) for n in self._nodes)
        codes = [-1 if v is None else code.setdefault(v, len(code)) for v in found]
        return np.array(codes, np.int64), list(code)

    def scores(self, name: str) -> Floats:
        """A named score per node."""
        return np.fromiter((n.scores.get(name, np.nan) for n in self._nodes), np.float64, len(self._nodes))

    def score_names(self) -> set[str]:
        """Names of all scores."""
        return set(chain.from_iterable(n.scores for n in self._nodes))

    def flat(self, name: str) -> tuple[Array, Ints]:
        """A per-action column laid end to end."""
        found = [getattr(n, name) for n in self._nodes]
        present = [a for a in found if a is not None]
        values = np.concatenate(present) if present else np.zeros(0)
        return values, offsets([0 if a is None else len(a) for a in found])

    def notes(self, rows: Ints) -> Iterator[Notes]:
        """The notes of some nodes."""
        return (self._nodes[i].notes for i in rows.tolist())

    def events(self) -> Events:
        """All events."""
        pairs = [(i, e) for i, t in enumerate(self._trees) for e in t.events]
        return Events(
            np.array([i for i, _ in pairs], np.int64),
            np.array([-1 if e.node is None else e.node for _, e in pairs], np.int64),
            [e.kind for _, e in pairs], [e.why for _, e in pairs], np.array([e.at for _, e in pairs], np.float64),
            [e.numbers for _, e in pairs],
        )  # fmt: skip


class Saved:
    """One saved forest (`rolltree.tree.parquet`), its columns unread until they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._archive = open_forest(folder)
        with readable(folder / "trees.parquet"):
            self._heads = open_file(folder, "trees").read()
        self.ids = cast("list[str]", self._heads["tree"].to_pylist())
        self.items = cast("list[str]", self._heads["item"].to_pylist())
        self.sizes: Ints = self._heads["nodes"].to_numpy()
        self.numbers = self._archive.numbers
        self.words = self._archive.words
        self.scores = self._archive.scores
        self.flat = self._archive.flat

    def score_names(self) -> set[str]:
        """Names of all scores."""
        chunks = self._archive.column("scores").chunks
        return {name for chunk in chunks for name in chunk.keys.unique().to_pylist()}

    def notes(self, rows: Ints) -> Iterator[Notes]:
        """The notes of some nodes; their top level is plain JSON."""
        texts = self._archive.column("notes").take(rows).to_pylist()
        return ({} if text is None else cast("Notes", json.loads(text)) for text in texts)

    def events(self) -> Events:
        """All events."""
        return self._events

    @cached_property
    def _events(self) -> Events:
        with readable(self._folder / "events.parquet"):
            table = open_file(self._folder, "events").read()
        columns = {name: table[name].to_pylist() for name in ("kind", "why", "numbers")}
        return Events(
            np.repeat(np.arange(len(self.ids)), self._heads["events"].to_numpy()),
            table["node"].fill_null(-1).to_numpy().astype(np.int64),
            columns["kind"], columns["why"], table["at"].to_numpy(), columns["numbers"],
        )  # fmt: skip
