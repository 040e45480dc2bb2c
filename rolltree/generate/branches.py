"""Paths that fork at fixed places, drawn hotter or colder from place to place: branching trees of tokens or of latents.

A denoising tree (BranchGRPO, Dynamic-TreeRPO) and a flat group whose noise is on in a window (MixGRPO) are both this:
where paths fork, and at which temperature each stretch is drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rolltree.engine.protocol import Engine
from rolltree.errors import RolltreeError
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.turns import stretch
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


class BranchError(RolltreeError, ValueError):
    """Places or temperatures that make no tree; names them and the way out."""


def places_of(name: str, text: str) -> list[int]:
    """Places written with commas, as the knob `splits` of the recipe `name` has them."""
    try:
        places = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        places = [-1]
    if any(place < 0 for place in places):
        raise BranchError(f"{name}: splits={text!r} are no steps; give numbers with commas, such as 0,3,6")
    return places


@dataclass(frozen=True, slots=True)
class Heat:
    """The temperature of the action behind each place (actions since the prompt).

    `base` everywhere, or inside a window alone, where it grows linearly with depth: base · (1 + growth · k / length) at
    the k-th action of the window (Dynamic-TreeRPO, arXiv 2509.23352, eq. 6, reconstructed). Outside it is `outside`.
    """

    base: float = 1.0
    window: tuple[int, int] | None = None
    """First place and length."""
    growth: float = 0.0
    outside: float = 0.0
    hot: tuple[int, ...] = ()
    """Places outside the window that are drawn at `base` all the same."""

    def at(self, place: int) -> float:
        """The temperature of the action that begins there."""
        if self.window is None:
            return self.base
        start, length = self.window
        if 0 <= place - start < length:
            return self.base * (1 + self.growth * (place - start) / length)
        return self.base if place in self.hot else self.outside

    @property
    def changes(self) -> set[int]:
        """Places at which another temperature begins."""
        if self.window is None:
            return set()
        start, length = self.window
        inside = set(range(start, start + length + 1)) if self.growth else {start, start + length}
        return inside.union(self.hot, (place + 1 for place in self.hot))


@dataclass(frozen=True, slots=True)
class Branches:
    """`first` paths from the prompt; at each of `places` (actions since the prompt) every path forks into `ways`."""

    places: tuple[int, ...] = ()
    ways: int = 2
    first: int = 1
    heat: Heat = Heat()
    want: frozenset[str] = frozenset()
    """Extras to record."""
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.first < 1 or self.ways < 1 or any(p < 1 for p in self.places):
            raise BranchError(
                f"branches from {self.first} paths at {self.places}, {self.ways} ways: paths and ways are at least 1, "
                "and places count actions behind the prompt, from 1 on"
            )

    @property
    def leaves(self) -> int:
        """Paths of a whole tree."""
        return self.first * self.ways ** len(set(self.places))

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse places at which nothing is drawn."""
        cold = sorted(p for p in self.places if self.ways > 1 and self.heat.at(p) == 0)
        if cold:
            raise BranchError(
                f"paths are to fork at place {cold[0]}, where the temperature is 0 and nothing is drawn; fork inside "
                "the window of noise"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Stage by stage; all paths of a stage are one batch."""
        bounds = sorted({0, *self.places, *(c for c in self.heat.changes if c > 0)})
        live: Sequence[Node] = [tree.root]
        for begin, end in zip(bounds, [*bounds[1:], None], strict=True):
            ways = self.first if begin == 0 else self.ways if begin in self.places else 1
            draw: SamplingOptions = {"temperature": self.heat.at(begin)}
            if end is not None:
                draw["max_tokens"] = end - begin
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._onward(hand, node, ways, begin, draw)) for node in live]
            live = [node for task in tasks for node in task.result() if node.status == "open"]

    async def _onward(self, hand: Hand, node: Node, ways: int, place: int, draw: SamplingOptions) -> list[Node]:
        why = f"fork at place {place}" if ways > 1 and place else ""
        return await stretch(hand, node, ways, birth="resample" if why else None, want=self.want, why=why, **draw)
