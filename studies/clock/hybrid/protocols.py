"""Transfer protocols: how a call of a group of workers splits its arguments and puts its results together.

The law of all of them: collecting what each worker makes of its part is what one worker makes of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Grid:
    """Ranks of a group: pipeline stages × tensor parts × data replicas, in this order of digits."""

    pipeline: int
    tensor: int
    data: int

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.pipeline * self.tensor * self.data

    def place(self, rank: int) -> tuple[int, int, int]:
        """Its stage, part and replica."""
        rest, tensor = divmod(rank, self.tensor)
        data, pipeline = divmod(rest, self.pipeline)
        return pipeline, tensor, data


def parts(size: int, of: int) -> list[slice]:
    """Consecutive shares that differ by one at most; some are empty where there are more than items."""
    least, more = divmod(size, of)
    ends = [k * least + min(k, more) for k in range(of + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A protocol for the ranks of a grid."""

    distribute: Callable[[Grid, Sequence[Any]], list[Sequence[Any]]]
    """The argument of each rank."""
    collect: Callable[[Grid, Sequence[Sequence[Any]]], list[Any]]
    """The result from those of the ranks."""

    def call(self, grid: Grid, work: Callable[[Sequence[A]], Sequence[B]], argument: Sequence[A]) -> list[B]:
        """What the controller sees: it knows no rank."""
        return self.collect(grid, [work(part) for part in self.distribute(grid, argument)])


def _to_all(grid: Grid, argument: Sequence[A]) -> list[Sequence[A]]:
    return [argument] * grid.ranks


def _first(grid: Grid, results: Sequence[Sequence[B]]) -> list[B]:
    return list(results[0])


def _by_rank(grid: Grid, argument: Sequence[A]) -> list[Sequence[A]]:
    return [argument[part] for part in parts(len(argument), grid.ranks)]


def _joined(grid: Grid, results: Sequence[Sequence[B]]) -> list[B]:
    return [one for result in results for one in result]


def _by_replica(grid: Grid, argument: Sequence[A]) -> list[Sequence[A]]:
    shares = [argument[part] for part in parts(len(argument), grid.data)]
    return [shares[grid.place(rank)[2]] for rank in range(grid.ranks)]


def _last_stage(grid: Grid, results: Sequence[Sequence[B]]) -> list[B]:
    wanted = {(grid.pipeline - 1, 0, data): data for data in range(grid.data)}
    found = {wanted[place]: results[r] for r in range(grid.ranks) if (place := grid.place(r)) in wanted}
    return [one for data in range(grid.data) for one in found[data]]


PROTOCOLS: Mapping[str, Transfer] = {
    "one to all": Transfer(_to_all, _first),
    "data parallel": Transfer(_by_rank, _joined),
    "3D": Transfer(_by_replica, _last_stage),
}
"""One to all: everybody has the whole. Data parallel: everybody has a share. 3D: stages and parts of a replica have
the replica's share, and its last stage answers."""
