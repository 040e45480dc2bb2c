"""Where episodes begin: the rows of a file or list, or seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from rolltree.task.data.source import read_data
from rolltree.task.items import TaskError, check_item, digest, split_of, stream
from rolltree.task.protocol import Item, Split

LOOKED = 8
"""Seeds that are compared to see whether an environment starts the same everywhere."""


class Seeds:
    """An episode per seed, without end.

    The split is that of what the environment shows, so that no start of the test is met in training. Where all starts
    look alike that is impossible and the seeds are split: the test then measures the same start under other chance.
    """

    def __init__(self, name: str, begin: Callable[[int], Item]) -> None:
        self._name, self._begin = name, begin
        self.first = [begin(seed) for seed in range(LOOKED)]
        self.alike = len({item.prompt for item in self.first}) == 1
        """Whether the starts of the first seeds cannot be told apart."""

    def items(self, split: Split, seed: int) -> Iterator[Item]:
        """Items of a split in the order of one stream of seeds."""
        return stream(self._name, 0, split, seed, self._draw)

    def count(self, split: Split) -> int | None:
        """There is no end of seeds."""
        return None

    def _draw(self, rng: Random) -> tuple[str, Item]:
        start = rng.randrange(2**31)
        item = self._begin(start)
        return str(start) if self.alike else item.prompt, item


class StartRows:
    """An episode per row, shuffled anew on every pass. A column `split` decides the split, else the row's content."""

    def __init__(
        self, name: str, rows: Sequence[Mapping[str, Any]], begin: Callable[[Mapping[str, Any]], Item]
    ) -> None:
        self._name = name
        self._rows = [(row, str(row.get("split") or split_of(content(row)))) for row in rows]
        self._begin = begin
        self._known: dict[str, Item] = {}
        if not rows:
            raise TaskError(f"{name} has no rows; give at least one")
        self.first = self._item(rows[0])

    def items(self, split: Split, seed: int) -> Iterator[Item]:
        """The rows of a split, again and again."""
        chosen = [row for row, part in self._rows if part == split]
        if split == "test":  # held-out rows are measured once each
            chosen = list({content(row): row for row in chosen}.values())
        if not chosen:
            raise TaskError(f"{self._name} has no {split} rows: give more rows, or a column split")
        return self._endless(chosen, Random(f"{self._name}/{split}/{seed}"))

    def count(self, split: Split) -> int | None:
        """How many rows a split has."""
        parts = [content(row) for row, part in self._rows if part == split]
        return len(parts) if split == "train" else len(set(parts))

    def _endless(self, rows: list[Mapping[str, Any]], rng: Random) -> Iterator[Item]:
        while True:
            yield from map(self._item, rng.sample(rows, len(rows)))

    def _item(self, row: Mapping[str, Any]) -> Item:
        key = content(row)
        if key not in self._known:
            self._known[key] = check_item(self._begin(row))
        return self._known[key]


def content(row: Mapping[str, Any]) -> str:
    """A row in one canonical text."""
    return json.dumps({k: v for k, v in row.items() if k != "split"}, sort_keys=True, default=str)


def row_id(row: Mapping[str, Any]) -> str:
    """The id that a row gives itself, or one made of its content."""
    return str(row.get("id") or row.get("item") or f"row-{digest(content(row))}")


def read_rows(source: str | Path | Iterable[Mapping[str, Any]], limit: int | None = None) -> list[Mapping[str, Any]]:
    """Rows of a JSON-lines or Parquet file, or of anything that yields mappings (a `datasets.Dataset`)."""
    if isinstance(source, str | Path):
        return [row.values for row in read_data(str(source), limit)]
    return list(islice(source, limit))
