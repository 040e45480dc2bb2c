"""A grid world in which the policy says what it is about: turns with tags (`spoken:grid`), or a plan first
(`planned:grid`).

Spoken turns are `[S]{a}(^)`: switch or keep the subgoal, the subgoal, the move. A planned rollout begins with the
subgoals in order, `aA*;`; then turns are moves, `(^)`, and each reply names the subgoal in force. The policy ends a
subgoal with `(!^)`, or the environment does when it is reached or `patience` moves have passed. The experts' play in
these formats is a corpus to learn them from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from rolltree.task.grammar import Grammar, Tag
from rolltree.task.items import TaskError
from rolltree.task.nano.grid import Grid
from rolltree.task.nano.world import MOVES, Walker, parse
from rolltree.task.protocol import Item, Reply, Split, Verdict

TURN = Grammar((Tag("switch", "[", "]", 2), Tag("subgoal", "{", "}", 1), Tag("action", "(", ")")))
SWITCH, KEEP = "S", "K"


def missing(item: Item, walker: Walker) -> tuple[str, ...]:
    """Subgoals not reached yet, in an order in which they can be, the goal last."""
    held = walker.keys | walker.opened
    return (*sorted((g for g in parse(item.meta["size"], item.prompt).subgoals if g not in held), key=_rank), "*")


def towards(item: Item, walker: Walker, goal: str) -> list[str]:
    """The moves that begin a shortest way to a subgoal and to no other; none where there is no such way, or no need."""
    world, held = parse(item.meta["size"], item.prompt), walker.keys | walker.opened
    if goal in held:
        return []
    edge: dict[Walker, set[str]] = {walker: set()}
    seen: set[Walker] = set()
    while edge:
        found = [begun for at, begun in edge.items() if (at.home if goal == "*" else goal in at.keys | at.opened)]
        if found:
            return sorted(set[str]().union(*found))
        seen |= edge.keys()
        beyond: dict[Walker, set[str]] = {}
        for at, begun in edge.items():
            if at.home or at.keys | at.opened != held:
                continue
            for arrow in MOVES:
                after, _ = world.move(at, arrow)
                if after not in seen:
                    beyond.setdefault(after, set()).update(begun or {arrow})
        edge = beyond
    return []


def _walk(ways: list[str], rng: Random, noise: float) -> str:
    """One of these moves; any where there is none, and with probability `noise`."""
    return rng.choice(ways if ways and rng.random() >= noise else sorted(MOVES))


def _rank(letter: str) -> tuple[str, bool]:
    return letter.lower(), letter.isupper()


@dataclass(frozen=True)
class SpokenGrid:
    """The grid with a tagged turn per move."""

    measures: ClassVar[frozenset[str]] = Grid.measures
    level: int = 2
    name: str = field(default="spoken:grid", init=False)
    stop: tuple[str, ...] = field(default=(")",), init=False)
    grammar: Grammar = field(default=TURN, init=False, repr=False)

    @property
    def inner(self) -> Grid:
        """The world itself."""
        return Grid(self.level)

    @property
    def max_turns(self) -> int:
        """Moves of a rollout."""
        return self.inner.max_turns

    @property
    def max_tokens(self) -> int:
        """Nine characters a turn, and some to err."""
        return 10 * self.max_turns

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The grid's."""
        return self.inner.items(split, seed)

    def start(self, item: Item) -> tuple[tuple[Walker, str], str | None]:
        """At the start, with no subgoal."""
        walker, key = self.inner.start(item)
        return (walker, ""), key

    async def step(self, item: Item, state: tuple[Walker, str], text: str) -> Reply:
        """Move as the action says. A turn without one, or one that keeps and changes its subgoal, has failed."""
        walker, before = state
        said = {name: TURN.inside(text, name) for name in ("switch", "subgoal", "action")}
        goal = said["subgoal"] or before
        reply = await self.inner.step(item, walker, said["action"] or "")
        torn = said["switch"] not in (SWITCH, KEEP) or (said["switch"] == KEEP and before not in ("", goal))
        return Reply(reply.text, (reply.state, goal), reply.done, reply.reward, reply.state_key,
                     failed=reply.failed or torn, parts=reply.parts)  # fmt: skip

    async def verify(self, item: Item, state: tuple[Walker, str], text: str) -> Verdict:
        """The grid's."""
        return await self.inner.verify(item, state[0], text)

    def act(self, item: Item, state: tuple[Walker, str], rng: Random, noise: float = 0.0) -> str:
        """Keep to a subgoal until it is reached, then the next one missing; with `noise` another, or any move."""
        (walker, before), left = state, missing(item, state[0])
        goal = before
        if before not in left or not towards(item, walker, before):
            goal = rng.choice(left) if rng.random() < noise else left[0]
        move = _walk(towards(item, walker, goal), rng, noise)
        return TURN.write(switch=KEEP if goal == state[1] else SWITCH, subgoal=goal, action=move)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Where a planned rollout stands."""

    walker: Walker
    plan: tuple[str, ...] | None = None
    """Subgoals still to come, the one in force first; None = nothing planned yet."""
    moves: int = 0
    """Since it came into force."""


@dataclass(frozen=True)
class PlannedGrid:
    """The grid after a plan in words."""

    measures: ClassVar[frozenset[str]] = Grid.measures
    level: int = 2
    patience: int = 8
    """Moves for a subgoal before the next one comes into force."""
    name: str = field(default="planned:grid", init=False)
    stop: tuple[str, ...] = field(default=(";", ")"), init=False)
    plan_turns: int = field(default=1, init=False)

    @property
    def inner(self) -> Grid:
        """The world itself."""
        return Grid(self.level)

    @property
    def max_turns(self) -> int:
        """The plan, and the moves of a rollout."""
        return 1 + self.inner.max_turns

    @property
    def max_tokens(self) -> int:
        """Five characters a turn."""
        return 5 * self.max_turns

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The grid's."""
        return self.inner.items(split, seed)

    def start(self, item: Item) -> tuple[Blueprint, str | None]:
        """At the start, without a plan."""
        walker, key = self.inner.start(item)
        return Blueprint(walker), key

    async def step(self, item: Item, state: Blueprint, text: str) -> Reply:
        """Take note of the plan, then move; each reply ends with the subgoal in force."""
        if state.plan is None:
            known = (*parse(item.meta["size"], item.prompt).subgoals, "*")
            plan = tuple(letter for letter in text if letter in known)
            made = Blueprint(state.walker, plan)
            return Reply(_names(made), made, state_key=f"{item.id}/{state.walker.key}", failed=not plan)
        inside = TURN.inside(text, "action") or ""
        reply = await self.inner.step(item, state.walker, inside.replace("!", ""))
        reached = state.plan[:1] and state.plan[0] not in missing(item, reply.state)
        over = "!" in inside or reached or state.moves + 1 >= self.patience
        plan, moves = (state.plan[1:], 0) if over else (state.plan, state.moves + 1)
        now = Blueprint(reply.state, plan, moves)
        return Reply(reply.text + _names(now), now, reply.done, reply.reward, reply.state_key, failed=reply.failed,
                     parts=reply.parts)  # fmt: skip

    async def verify(self, item: Item, state: Blueprint, text: str) -> Verdict:
        """The grid's, of what came after the plan."""
        return await self.inner.verify(item, state.walker, text.partition(";")[2])

    def act(self, item: Item, state: Blueprint, rng: Random, noise: float = 0.0) -> str:
        """Plan the subgoals in an order that works, then walk to the one in force; with `noise` any order, or any move.

        Where it cannot be reached the moves are at random: what a plan is worth shows.
        """
        if state.plan is not None:
            goal = state.plan[0] if state.plan else missing(item, state.walker)[0]
            return f"({_walk(towards(item, state.walker, goal), rng, noise)})"
        plan = list(missing(item, state.walker))
        if rng.random() < noise:
            rng.shuffle(plan)
        return "".join(plan) + ";"


def _names(state: Blueprint) -> str:
    return f">{state.plan[0]}" if state.plan else ">"


def spoken(name: str, level: int = 2) -> SpokenGrid:
    """The task behind `spoken:NAME`."""
    return SpokenGrid(_checked("spoken", name, level))


def planned(name: str, level: int = 2, patience: int = 8) -> PlannedGrid:
    """The task behind `planned:NAME`."""
    return PlannedGrid(_checked("planned", name, level), patience)


def _checked(prefix: str, name: str, level: int) -> int:
    if name != "grid":
        raise TaskError(f"{prefix}:{name} does not exist: subgoals are the grid's; write {prefix}:grid")
    return Grid(level).level
