"""The grid world itself: cells, walls with a locked door, keys, and distances to the goal.

A layout is one line: `@00 a13 A22| *44 #31` puts the walker on row 0, column 0, key a on 13, a wall along column 2
with its door A on 22 (`-` for a wall along the row), the goal on 44 and a single wall cell on 31.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

Cell = tuple[int, int]
MOVES: Mapping[str, Cell] = {"^": (-1, 0), "v": (1, 0), "<": (0, -1), ">": (0, 1)}
THING = re.compile(r"([@*#a-zA-Z])(\d)(\d)([|-]?)")


@dataclass(frozen=True, slots=True)
class Walker:
    """Where the walker stands, which keys it holds and which doors it has opened: all that the future depends on."""

    at: Cell
    keys: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    home: bool = False

    @property
    def key(self) -> str:
        """Name of the state, the same however it was reached."""
        return f"{self.at[0]}{self.at[1]}{''.join(sorted(self.keys | self.opened))}{'*' if self.home else ''}"


@dataclass(frozen=True)
class World:
    """A layout. `keys` and `doors` map a cell to its letter; a door's letter is its key's in upper case."""

    size: int
    start: Cell
    goal: Cell
    walls: frozenset[Cell]
    keys: Mapping[Cell, str] = field(hash=False)
    doors: Mapping[Cell, str] = field(hash=False)

    @property
    def subgoals(self) -> tuple[str, ...]:
        """Letters of the keys to take and the doors to open."""
        return (*sorted(self.keys.values()), *sorted(self.doors.values()))

    def move(self, walker: Walker, arrow: str) -> tuple[Walker, str]:
        """Where a move leads, and what happened: `.`, wall `#`, locked `!`, goal `*`, or a letter."""
        row, column = walker.at[0] + MOVES[arrow][0], walker.at[1] + MOVES[arrow][1]
        cell = (row, column)
        if not (0 <= row < self.size and 0 <= column < self.size) or cell in self.walls:
            return walker, "#"
        door = self.doors.get(cell)
        if door is not None and door.lower() not in walker.keys:
            return walker, "!"
        moved = replace(walker, at=cell)
        if cell == self.goal:
            return replace(moved, home=True), "*"
        if door is not None and door not in walker.opened:
            return replace(moved, opened=walker.opened | {door}), door
        key = self.keys.get(cell)
        if key is not None and key not in walker.keys:
            return replace(moved, keys=walker.keys | {key}), key
        return moved, "."


@lru_cache(maxsize=4096)
def parse(size: int, layout: str) -> World:
    """Read a layout line."""
    cells: dict[str, list[Cell]] = {}
    lines: set[Cell] = set()
    for mark, row, column, line in THING.findall(layout):
        cell = (int(row), int(column))
        cells.setdefault(mark, []).append(cell)
        if line:
            lines |= {(cell[0], k) if line == "-" else (k, cell[1]) for k in range(size)} - {cell}
    keys = {place[0]: mark for mark, place in cells.items() if mark.islower()}
    doors = {place[0]: mark for mark, place in cells.items() if mark.isupper()}
    walls = frozenset(lines | set(cells.get("#", ())))
    return World(size, cells["@"][0], cells["*"][0], walls, keys, doors)


def _reachable(world: World) -> Iterator[tuple[Walker, Walker]]:
    """Every (state, next state) that can be reached from the start."""
    first = Walker(world.start)
    seen, queue = {first}, deque([first])
    while queue:
        walker = queue.popleft()
        if walker.home:
            continue
        for arrow in MOVES:
            after, _ = world.move(walker, arrow)
            yield walker, after
            if after not in seen:
                seen.add(after)
                queue.append(after)


@lru_cache(maxsize=1 << 16)
def shortest(size: int, layout: str) -> int | None:
    """Fewest moves from the start to the goal; None where it cannot be reached.

    Streams ask it of every layout they draw, at every evaluation again: so states are plain tuples here.
    """
    world = parse(size, layout)
    held: frozenset[str] = frozenset()
    first = (world.start, held)
    seen, edge, moves = {first}, [first], 0
    while edge:
        moves += 1
        beyond: list[tuple[Cell, frozenset[str]]] = []
        for (row, column), keys in edge:
            for down, right in MOVES.values():
                cell = (row + down, column + right)
                if not (0 <= cell[0] < size and 0 <= cell[1] < size) or cell in world.walls:
                    continue
                if (door := world.doors.get(cell)) is not None and door.lower() not in keys:
                    continue
                if cell == world.goal:
                    return moves
                # A door that was opened changes nothing: who holds its key passes it.
                after = (cell, keys | {key} if (key := world.keys.get(cell)) is not None else keys)
                if after not in seen:
                    seen.add(after)
                    beyond.append(after)
        edge = beyond
    return None


@lru_cache(maxsize=256)
def distances(size: int, layout: str) -> Mapping[Walker, int]:
    """Fewest moves to the goal from every reachable state that can still reach it."""
    before: dict[Walker, list[Walker]] = {}
    for walker, after in _reachable(parse(size, layout)):
        before.setdefault(after, []).append(walker)
    far = {walker: 0 for walker in before if walker.home}
    queue = deque(far)
    while queue:
        walker = queue.popleft()
        for earlier in before.get(walker, ()):
            if earlier not in far:
                far[earlier] = far[walker] + 1
                queue.append(earlier)
    return far
