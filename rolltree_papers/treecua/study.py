"""TreeCUA on a graph of screens that cannot be copied: `python -m rolltree_papers.treecua.study`.

Menus lead deeper, and some things back to the first screen. An explorer likes some actions more than others, so that
independent episodes see the same shallow screens again and again. A path of the tree starts at an action that was left
open, and its way there is played again from the first screen: those actions are counted too. With a small chance a
popup hides a screen; a way that does not show what it showed is given up. `pairs` asks what siblings teach: a table of
preferences learns from pairs at one screen, or from as many pairs whose worse action is from another screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from rolltree.generate.search.graph import TRIED, Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search
from rolltree_papers.treecua import Exploration, ExploreRules, Order
from studies.command import run_study
from studies.lab.claim import Measured

SCREENS, ACTIONS, STEPS = 200, 6, 12
POPUP = -1


@dataclass(frozen=True, slots=True)
class Screens:
    """Where each action of each screen leads."""

    leads: tuple[tuple[int, ...], ...]
    popups: float = 0.05

    def liked(self, screen: int, rng: Random, most: int) -> list[int]:
        """Up to so many different actions, the first ones the likelier."""
        drawn = rng.choices(range(ACTIONS), [1 / (1 + k) ** 2 for k in range(ACTIONS)], k=most)
        return list(dict.fromkeys(drawn))


def screens(seed: int, popups: float = 0.05) -> Screens:
    """Menus of three below every screen while there are any left; all else leads to the first screen or nowhere."""
    rng = Random(f"screens/{seed}")
    leads: list[list[int]] = [[] for _ in range(SCREENS)]
    fresh = 1
    for screen in range(SCREENS):
        while len(leads[screen]) < 3 and fresh < SCREENS:
            leads[screen].append(fresh)
            fresh += 1
        leads[screen] += [rng.choice((0, screen)) for _ in range(ACTIONS - len(leads[screen]))]
        rng.shuffle(leads[screen])
    return Screens(tuple(map(tuple, leads)), popups)


@dataclass
class Seen:
    """What an exploration came to."""

    pairs: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Screens with actions that were done there."""
    actions: int = 0
    """All that were done, those on the way back included."""
    depths: list[int] = field(default_factory=list[int])
    """Length of every path."""
    popups: int = 0
    """Popups on the way back."""
    diverged: int = 0
    """Ways back that were given up."""
    back: int = 0
    """Paths that started at an action which an earlier one had left open."""


class _Worker:
    """Plays actions on one machine that can only be reset."""

    def __init__(self, world: Screens, rng: Random, rules: ExploreRules, budget: int) -> None:
        self.world, self.rng, self.rules, self.budget = world, rng, rules, budget
        self.seen = Seen()
        self.at: SearchNode[tuple[int, int]] | None = None

    def shown(self, screen: int) -> int:
        """What is to be seen: the screen, or a popup."""
        return POPUP if self.rng.random() < self.world.popups else screen

    async def make(self, moves: Sequence[Move[tuple[int, int]]]) -> Sequence[Sequence[Made[tuple[int, int]]]] | None:
        node, seen, out = moves[0].node, self.seen, list[Made[tuple[int, int]]]()
        if seen.actions >= self.budget:
            return None
        here = 0
        if node.parent is not None:
            if node.parent is not self.at and not self._replayed(node):
                self.at = None
                return [[Made(node.payload, here=True, closed=True, notes={TRIED: True})]]
            before, action = node.parent.payload[0], node.payload[1]
            here = self.world.leads[before][action]
            seen.actions += 1
            seen.pairs.add((before, action))
            seen.depths.append(node.depth)
            seen.back += node.parent is not self.at and node.depth > 1
            out.append(Made((here, action), here=True, notes={TRIED: True}))
        self.at = node
        if node.depth < self.rules.steps:
            out += [Made((here, a)) for a in self.world.liked(here, self.rng, self.rules.wide(node))]
        return [out]

    def _replayed(self, node: SearchNode[tuple[int, int]]) -> bool:
        """Whether every screen on the way is what it was."""
        for step in node.path()[1:-1]:
            self.seen.actions += 1
            shown = self.shown(step.payload[0])
            self.seen.popups += shown == POPUP
            if shown != step.payload[0]:
                self.seen.diverged += 1
                return False
        return True


def tree(world: Screens, budget: int, seed: int, order: Order = "hybrid") -> tuple[Seen, SearchGraph[tuple[int, int]]]:
    """An exploration with so many actions."""
    rules = ExploreRules(10**6, STEPS, order=order)
    worker = _Worker(world, Random(f"tree/{seed}"), rules, budget)
    graph: SearchGraph[tuple[int, int]] = SearchGraph((0, -1))
    asyncio.run(search(Exploration(rules), graph, worker.make, turns=10**6, rng=np.random.default_rng))
    return worker.seen, graph


def episodes(world: Screens, budget: int, seed: int) -> Seen:
    """Independent episodes with as many."""
    rng, seen = Random(f"episodes/{seed}"), Seen()
    while seen.actions < budget:
        here = 0
        for depth in range(1, STEPS + 1):
            action = world.liked(here, rng, 1)[0]
            seen.pairs.add((here, action))
            seen.actions += 1
            seen.depths.append(depth)
            here = world.leads[here][action]
    return seen


def explored(seed: int, budget: int = 1500) -> Measured:
    """Different actions that were done: by the tree, by episodes."""
    world = screens(seed)
    mine = tree(world, budget, seed)[0]
    return Measured(len(mine.pairs), len(episodes(world, budget, seed).pairs),
                    acted={"paths from where another branched": float(mine.back)})  # fmt: skip


def pairs(seed: int, count: int, sibling: bool, rate: float = 1.0) -> float:
    """How often a table that learned from pairs comes to the screen asked for, by the shortest menus.

    A pair belongs to an instruction, the screen at a path's end; better is the path's action, worse another one that
    was tried beside it, or any action of another screen.
    """
    world = screens(seed, popups=0.0)
    graph = tree(world, 2000, seed)[1]
    done = [n for n in graph if n.notes.get(TRIED) and n.parent is not None]
    rng, table = Random(f"pairs/{seed}/{sibling}"), dict[tuple[int, int], np.ndarray]()
    ends = [n for n in done if n.depth > 2 and n.payload[0] != 0]
    goals = sorted({n.payload[0] for n in ends})
    for _ in range(count):
        end = rng.choice(ends)
        step = rng.choice(end.path()[1:])
        assert step.parent is not None
        place, goal, action = step.parent.payload[0], end.payload[0], step.payload[1]
        beside = [n.payload[1] for n in step.parent.children if n.notes.get(TRIED) and n.payload[1] != action]
        if not beside:
            continue
        other, worse = (place, rng.choice(beside)) if sibling else (rng.randrange(SCREENS), rng.randrange(ACTIONS))
        good = table.setdefault((place, goal), np.zeros(ACTIONS))
        bad = table.setdefault((other, goal), np.zeros(ACTIONS))
        push = rate / (1 + np.exp(good[action] - bad[worse]))
        good[action] += push
        bad[worse] -= push
    return float(np.mean([_reaches(world, table, goal) for goal in goals]))


def _reaches(world: Screens, table: dict[tuple[int, int], np.ndarray], goal: int) -> float:
    """Chance that the table's policy is at the goal within so many actions."""
    at = np.zeros(SCREENS)
    at[0], home = 1.0, 0.0
    for _ in range(6):
        after = np.zeros(SCREENS)
        for screen in np.flatnonzero(at):
            logits = table.get((int(screen), goal), np.zeros(ACTIONS))
            shares = np.exp(logits - logits.max())
            np.add.at(after, list(world.leads[screen]), at[screen] * shares / shares.sum())
        home, after[goal] = home + float(after[goal]), 0.0
        at = after
    return home


@dataclass(frozen=True)
class ScreensSettings:
    """How much is run."""

    seeds: int = 5
    """Graphs of screens."""
    budget: int = 1500
    """Actions of each arm."""
    count: int = 6000
    """Pairs."""


def main(settings: ScreensSettings) -> None:
    """Coverage by order, with what going back costs; and what pairs teach."""
    orders: tuple[Order, ...] = ("hybrid", "random", "deep", "shallow")
    for order in orders:
        rows = [tree(screens(s), settings.budget, s, order)[0] for s in range(settings.seeds)]
        print(f"tree, {order:8s} different actions {np.mean([len(r.pairs) for r in rows]):5.0f}  mean depth "
              f"{np.mean([np.mean(r.depths) for r in rows]):.1f}  spent on going back "
              f"{np.mean([1 - len(r.depths) / r.actions for r in rows]):.2f}  popups "
              f"{sum(r.popups for r in rows)}  given up {sum(r.diverged for r in rows)}")  # fmt: skip
    flat = [episodes(screens(s), settings.budget, s) for s in range(settings.seeds)]
    print(f"episodes       different actions {np.mean([len(r.pairs) for r in flat]):5.0f}  mean depth "
          f"{np.mean([np.mean(r.depths) for r in flat]):.1f}")  # fmt: skip
    for sibling in (True, False):
        found = np.mean([pairs(s, settings.count, sibling) for s in range(settings.seeds)])
        print(f"{'siblings' if sibling else 'any pair':14s} screens reached {found:.3f}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.treecua.study", ScreensSettings, main, __doc__))
