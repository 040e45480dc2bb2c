"""Tree-Planner in a household of preconditions: what it costs against asking at every step, and where the two cross.

A task is a chain of actions, each possible only after the one before it; any other action fails. Plans are sampled by a
policy that takes a wrong action with some chance at each step. `python -m rolltree_papers.tree_planner.study` prints
the ratio of tokens at equal success by length of the task and number of plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.generate.random import mix
from rolltree_papers.tree_planner import END, Action, PlanWalk, plan_trie, walk
from studies.command import run_study
from studies.lab.claim import Measured

PROMPT, ACTION, CHOICE, LETTER = 400, 6, 150, 2
"""Tokens of the task's prompt, of an action, of the prompt of a choice beside its options, of an answer to it."""


@dataclass(frozen=True, slots=True)
class Household:
    """A chain of actions; the state is how many of them are done."""

    length: int
    wrong: float = 0.1
    """Chance of a wrong action at each step of a plan."""
    kinds: int = 4
    """Wrong actions there are at each step."""

    def step(self, state: int, action: str) -> int | None:
        """Only the next action of the chain is possible."""
        return state + 1 if action == f"do {state}" else None

    def plan(self, rng: np.random.Generator) -> list[str]:
        """A plan of the noisy policy."""
        draws = zip(rng.random(self.length), rng.integers(self.kinds, size=self.length), strict=True)
        return [f"try {k} at {i}" if u < self.wrong else f"do {i}" for i, (u, k) in enumerate(draws)]

    def plans(self, n: int, seed: int) -> list[list[str]]:
        """So many of them."""
        rng = np.random.default_rng(mix("plans", seed, self.length))
        return [self.plan(rng) for _ in range(n)]

    def feasible(self, plan: Sequence[str]) -> bool:
        """Whether every action of a plan is possible."""
        return all(action == f"do {i}" for i, action in enumerate(plan))


def walked(house: Household, plans: Sequence[Sequence[str]], *, corrections: int = 10, seed: int = 0,
           perfect: bool = False) -> PlanWalk[int]:  # fmt: skip
    """Walk the plans' trie; a perfect choice goes where a feasible plan goes on, another one goes by chance."""
    rng = np.random.default_rng(mix("choices", seed))

    async def choose(children: Sequence[Action], state: int) -> Action:
        if perfect:
            good = [c for c in children if c.payload == END or any(_good(house, below, state) for below in [c])]
            return good[0] if good else children[0]
        return children[int(rng.integers(len(children)))]

    async def step(state: int, action: Action) -> int | None:
        return house.step(state, action.payload)

    return asyncio.run(walk(plan_trie(plans), 0, step, choose, corrections=corrections))


def _good(house: Household, node: Action, state: int) -> bool:
    if node.payload == END:
        return True
    after = house.step(state, node.payload)
    return after is not None and any(_good(house, child, after) for child in node.children)


def planner_tokens(house: Household, n: int, found: PlanWalk[int]) -> int:
    """|prompt| + N·L̄ + Σ over branches of the choice's prompt with its options."""
    return PROMPT + n * house.length * ACTION + sum(CHOICE + k * ACTION + LETTER for k in found.choices)


def stepwise_tokens(house: Household) -> int:
    """Asking at each step: Σ_t (|prompt| + t·ā), and the action that is written. Wrong actions are left out, in its
    favour."""
    return sum(PROMPT + t * ACTION + ACTION for t in range(house.length))


def ratio(length: int, n: int, seeds: int = 20, wrong: float = 0.1) -> float:
    """Tokens of Tree-Planner per token of asking at each step."""
    house = Household(length, wrong)
    paid = [planner_tokens(house, n, walked(house, house.plans(n, s), seed=s)) for s in range(seeds)]
    return float(np.mean(paid)) / stepwise_tokens(house)


def crossing(n: int, most: int = 40) -> int:
    """The shortest task at which Tree-Planner is cheaper; `most` where it is not up to there."""
    return next((length for length in range(1, most) if ratio(length, n) < 1), most)


def cheaper(seed: int) -> Measured:
    """Tokens of asking at each step against Tree-Planner's, 25 plans, 12 actions."""
    house = Household(12)
    found = walked(house, house.plans(25, seed), seed=seed)
    return Measured(stepwise_tokens(house), planner_tokens(house, 25, found),
                    acted={"forks where it was asked": float(len(found.choices))})  # fmt: skip


@dataclass(frozen=True)
class PlannerSettings:
    """How much is run."""

    plans: tuple[int, ...] = (5, 25, 50, 200)
    """Numbers of sampled plans."""
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16, 24)
    """Lengths of the task, in actions."""


def main(settings: PlannerSettings) -> None:
    """Tokens per token of asking at each step, and the shortest task for which plans are cheaper."""
    for plans in settings.plans:
        told = "  ".join(f"L={length}: {ratio(length, plans):5.2f}" for length in settings.lengths)
        print(f"N={plans:3d}  {told}  cheaper from L={crossing(plans)}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.tree_planner.study", PlannerSettings, main, __doc__))
