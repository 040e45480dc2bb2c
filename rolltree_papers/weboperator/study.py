"""WebOperator on a site that forgets and does not forgive: `python -m rolltree_papers.weboperator.study`.

Pages list what can be clicked, by number. Links lead to other pages; a panel opens more on the same page, and is closed
again when the page is opened anew; some things delete, for good, and what stands behind them on every list moves up. So
a way that is gone again may click something else than it did at first. With a small chance a popup takes the first
place. Scores of actions are noisy. Best first that goes back to a page and clicks the number again is held against the
queue that knows kinds of actions, goes back from checkpoints, and looks first whether every click meets what it met.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import numpy as np

from rolltree.generate.search.graph import TRIED, Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search
from rolltree.generate.search.proposals import CHECKPOINT, COUNT, DESTRUCTIVE, ENDED, KIND, NAME, way_back
from rolltree.task.protocol import ActionKind
from rolltree_papers.weboperator import ActionQueue, OperatorRules
from rolltree_papers.weboperator.study_world import Live, Site, Thing, site
from studies.command import run_study
from studies.lab.claim import Measured

Arm = Literal["WebOperator", "patient", "best first", "looking first", "greedy"]
KNOWING: tuple[Arm, ...] = ("WebOperator", "patient")
"""Arms that know kinds of actions and what a page forgets; the patient one waits for two ends however often the queue
overflows."""
DRAWS = 4
"""Proposals at a page."""
ARMS: tuple[Arm, ...] = (*KNOWING, "best first", "looking first", "greedy")


@dataclass(frozen=True, slots=True)
class Click:
    """A proposed action: the number, what stood there, and the page it leads to."""

    number: int
    thing: Thing | None
    page: int = 0


@dataclass
class Episode:
    """What came of one search."""

    right: bool = False
    harm: int = 0
    """Deletions."""
    clicks: int = 0
    """Of the search and of going back, those of fresh tabs included."""
    caught: int = 0
    """Ways back that would have clicked something else, and were not gone."""
    wrong: int = 0
    """Clicks that met something else than when they were proposed."""
    given_up: list[str] = field(default_factory=list[str])
    """Why the queue gave up each proposal that it did."""


class _Tab:
    """What a turn of the search does: goes back if need be, clicks, and scores what can be clicked then."""

    def __init__(self, place: Site, arm: Arm, seed: int, noise: float, popups: float, early: float) -> None:
        self.rng = Random(f"site/{seed}")
        self.live = Live(place, self.rng, popups)
        self.arm: Arm = arm
        self.noise, self.early = noise, early
        self.at: SearchNode[Click] | None = None
        self.found = Episode()

    async def make(self, moves: Sequence[Move[Click]]) -> Sequence[Sequence[Made[Click]]]:
        node, live, found = moves[0].node, self.live, self.found
        out: list[Made[Click]] = []
        if node.parent is not None:
            if node.parent is not self.at and not self._gone_back(node):
                return [[]]
            thing = live.click(node.payload.number)
            found.clicks += 1
            if thing is None or thing != node.payload.thing:
                found.wrong += 1
            if thing is None:
                self.at = None
                return [[]]
            found.harm += thing.kind == "delete"
            found.right |= thing.kind == "stop" and live.page == live.site.goal
            notes = {TRIED: True, ENDED: live.stopped, CHECKPOINT: self._may_return(thing)}
            if self.arm in KNOWING:
                notes[DESTRUCTIVE] = thing.kind == "delete"
            out.append(Made(Click(node.payload.number, thing, live.page), None, closed=live.stopped, here=True,
                            notes=notes))  # fmt: skip
        self.at = node
        if not live.stopped:
            out += self._proposed(live.seen())
        return [out]

    def _may_return(self, thing: Thing) -> bool:
        """A page whose address brings it back as it was; others believe that of every one."""
        return self.arm not in KNOWING or thing.kind == "link"

    def _gone_back(self, target: SearchNode[Click]) -> bool:
        again = way_back(target)
        if again is None:
            return False
        begin = again[0].parent if again else target.parent
        assert begin is not None
        steps = [*again, target]
        if self.arm != "best first":
            tab = self.live.tab()
            tab.open(begin.payload.page)
            if not self._same(tab, steps):
                self.found.caught += 1
                return False
        self.live.open(begin.payload.page)
        for step in again:
            self.found.clicks += 1
            thing = self.live.click(step.payload.number)
            self.found.wrong += thing != step.payload.thing
            self.found.harm += thing is not None and thing.kind == "delete"
            if thing is None or self.live.stopped:
                return False
        return True

    def _same(self, tab: Live, steps: Sequence[SearchNode[Click]]) -> bool:
        """Whether every click meets what it met; the last one is only looked at."""
        for i, step in enumerate(steps):
            things = tab.seen()
            number = step.payload.number
            if number >= len(things) or things[number] != step.payload.thing:
                return False
            if i < len(steps) - 1:
                tab.click(number)
                self.found.clicks += 1
        return True

    def _proposed(self, things: Sequence[Thing]) -> list[Made[Click]]:
        """Draws of the policy, those that are the same merged; ending elsewhere than at the goal is rarely proposed."""
        live = self.live
        good = [live.site.good(live.page, thing) for thing in things]
        weights = [1.0 if g else self.early if t.kind == "stop" else 0.5 for g, t in zip(good, things, strict=True)]
        drawn = Counter(self.rng.choices(range(len(things)), weights, k=DRAWS))
        knows = self.arm in KNOWING
        kinds: dict[str, ActionKind] = {"stop": "terminating", "delete": "destructive"} if knows else {}
        out: list[Made[Click]] = []
        for i, count in sorted(drawn.items()):
            scores = [(0.7 if good[i] else 0.3) + self.noise * self.rng.gauss(0, 1) for _ in range(count)]
            notes = {KIND: kinds.get(things[i].kind, "plain"), NAME: things[i].label, COUNT: count}
            out.append(Made(Click(i, things[i]), None, sum(scores) if knows else max(scores), notes=notes))
        return out


def episode(
    place: Site, arm: Arm, seed: int, *, noise: float = 0.25, popups: float = 0.05, early: float = 0.03, steps: int = 20
) -> Episode:
    """One search of a site; `early` is how much the policy thinks of ending where the goal is not."""
    tab = _Tab(place, arm, seed, noise, popups, early)
    queue = 4 if arm in KNOWING else 1 if arm == "greedy" else 10**6
    rules = OperatorRules(queue, steps=steps, prunes=10**6 if arm == "patient" else 3)
    plan = ActionQueue(rules, lambda node, why: tab.found.given_up.append(why))
    graph: SearchGraph[Click] = SearchGraph(Click(-1, None))
    asyncio.run(search(plan, graph, tab.make, turns=2 * steps, rng=np.random.default_rng))
    return tab.found


def arms(seed: int, sites: int = 60, **knobs: float) -> dict[Arm, list[Episode]]:
    """Every arm on the same sites."""
    places = [site(Random(f"{seed}/{i}")) for i in range(sites)]
    return {
        arm: [episode(place, arm, seed * sites + i, **knobs) for i, place in enumerate(places)]  # pyright: ignore
        for arm in ARMS
    }


def harmless(found: Sequence[Episode]) -> float:
    """Share of the episodes that reached the goal and deleted nothing."""
    return float(np.mean([e.right and not e.harm for e in found]))


def operated(seed: int) -> Measured:
    """Tasks done without harm by WebOperator against best first."""
    found = arms(seed)
    given_up = sum(len(e.given_up) for e in found["WebOperator"])
    return Measured(harmless(found["WebOperator"]), harmless(found["best first"]),
                    acted={"proposals that the queue gave up": float(given_up)})  # fmt: skip


@dataclass(frozen=True)
class SiteSettings:
    """How much is run."""

    seeds: int = 5
    """Sets of 60 sites."""
    noise: float = 0.25
    """Deviation of an action's score."""
    early: tuple[float, ...] = (0.01, 0.03, 0.1)
    """Weights of ending where the goal is not, against 1 of a right action."""


def main(settings: SiteSettings) -> None:
    """Success, harm, clicks and wrong clicks by arm."""
    for early in settings.early:
        rows = [arms(seed, noise=settings.noise, early=early) for seed in range(settings.seeds)]
        for arm in ARMS:
            found = [e for row in rows for e in row[arm]]
            wrong, caught = sum(e.wrong for e in found), sum(e.caught for e in found)
            print(f"early {early:4.2f} {arm:22s} done {np.mean([e.right for e in found]):.3f}  without harm "
                  f"{harmless(found):.3f}  deletions {np.mean([e.harm for e in found]):.3f}  clicks "
                  f"{np.mean([e.clicks for e in found]):4.1f}  wrong clicks {wrong:3d}  caught "
                  f"{caught / max(wrong + caught, 1):.2f}")  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.weboperator.study", SiteSettings, main, __doc__))
