"""A grid world with keys and doors, one move a turn.

The prompt is the layout (`world.py`); a turn is one of `^ v < >`; the reply is where the walker now stands and what
happened, `12.`. The state is the walker alone, so snapshots are free and the same state has the same key in every
trajectory of an item, whatever the way there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from typing import ClassVar

from rolltree.task.items import check_level, digest, stream
from rolltree.task.nano.world import MOVES, Walker, distances, parse, shortest
from rolltree.task.protocol import Item, Reply, Split, Verdict

LAYOUTS = {1: (4, 0, 1), 2: (5, 1, 0), 3: (5, 1, 2), 4: (7, 2, 0)}
"""Level -> size, doors, single walls."""
SLACK = 4
"""Moves that a rollout may waste on the longest layout."""
LONGEST = {1: 6, 2: 10, 3: 11, 4: 18}
"""Level -> longest shortest way of a layout."""


@dataclass(frozen=True)
class Grid:
    """Reach the goal. Keys taken and doors opened earn step rewards; the score is the goal alone."""

    measures: ClassVar[frozenset[str]] = frozenset({"goal"})
    level: int = 2
    name: str = field(default="grid", init=False)
    stop: tuple[str, ...] = field(default=tuple(MOVES), init=False)

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(LAYOUTS))

    @property
    def max_turns(self) -> int:
        """Moves of a rollout."""
        return LONGEST[self.level] + SLACK

    @property
    def max_tokens(self) -> int:
        """One token a move."""
        return self.max_turns

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Solvable layouts in which the start is never beside the goal."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    def start(self, item: Item) -> tuple[Walker, str | None]:
        """At the start, with empty hands."""
        walker = Walker(parse(item.meta["size"], item.prompt).start)
        return walker, f"{item.id}/{walker.key}"

    async def step(self, item: Item, state: Walker, text: str) -> Reply:
        """Move. Anything but one arrow leaves the walker where it is and is marked as failed."""
        world = parse(item.meta["size"], item.prompt)
        place = f"{state.at[0]}{state.at[1]}"
        if text not in MOVES or state.home:
            return Reply(f"{place}?", state, state.home, 0.0, f"{item.id}/{state.key}", failed=True)
        walker, event = world.move(state, text)
        reached = event in world.subgoals or event == "*"
        reward = 1.0 / (len(world.subgoals) + 1) if reached else 0.0
        parts = {event: 1.0} if reached else {}
        place = f"{walker.at[0]}{walker.at[1]}{event}"
        return Reply(place, walker, walker.home, reward, f"{item.id}/{walker.key}", parts=parts)

    async def verify(self, item: Item, state: Walker, text: str) -> Verdict:
        """1 at the goal, else 0; parts say which subgoals were reached. The answer is the way's arrows."""
        subgoals = parse(item.meta["size"], item.prompt).subgoals
        held = state.keys | state.opened
        parts = {letter: float(letter in held) for letter in subgoals} | {"goal": float(state.home)}
        way = "".join(mark for mark in text if mark in MOVES)
        why = (
            "" if state.home else f"stopped at {state.at[0]}{state.at[1]} holding {''.join(sorted(held)) or 'nothing'}"
        )
        return Verdict(float(state.home), parts, way if state.home else None, why)

    def act(self, item: Item, state: Walker, rng: Random, noise: float = 0.0) -> str:
        """A move on a shortest way; with probability `noise` any move at all."""
        if rng.random() < noise:
            return rng.choice(sorted(MOVES))
        world, far = parse(item.meta["size"], item.prompt), distances(item.meta["size"], item.prompt)
        left = {arrow: far.get(world.move(state, arrow)[0], len(far)) for arrow in MOVES}
        return rng.choice([arrow for arrow in MOVES if left[arrow] == min(left.values())])


def _draw(level: int, rng: Random) -> tuple[str, Item] | None:
    """Doors in parallel walls between the start and the goal, each key on the near side of its door."""
    size, doors, singles = LAYOUTS[level]
    lines = [0, *(sorted(rng.sample(range(1, size - 1), doors)) if doors else ()), size]
    if any(b - a < 2 for a, b in pairwise(lines[1:-1])):
        return None
    flip, upright = rng.random() < 0.5, rng.random() < 0.5
    used: set[tuple[int, int]] = set()

    def cell(low: int, high: int) -> str:
        """A free cell whose coordinate across the walls lies in [low, high)."""
        while True:
            across, along = rng.randrange(low, high), rng.randrange(size)
            across = size - 1 - across if flip else across
            place = (along, across) if upright else (across, along)
            if place not in used:
                used.add(place)
                return f"{place[0]}{place[1]}"

    things = ["@" + cell(0, lines[1] if doors else size)]
    for k in range(doors):
        letter = "abc"[k]
        things += [letter + cell(lines[k] + (k > 0), lines[k + 1]),
                   letter.upper() + cell(lines[k + 1], lines[k + 1] + 1) + ("|" if upright else "-")]  # fmt: skip
    things.append("*" + cell(lines[-2] + (doors > 0), size))
    things += ["#" + cell(0, size) for _ in range(singles)]
    prompt = " ".join(things) + "\n"
    moves = shortest(size, prompt)
    if moves is None or not 2 <= moves <= LONGEST[level]:
        return None
    return prompt, Item(f"grid-{digest(prompt)}", prompt, moves, level, {"size": size})
