"""The training loop: grow → filter → credit → fold → pack → objective → step → publish, over and over.

Everything a step draws follows from (run seed, step) and the task's cursor, so a run that was killed anywhere and
resumed from its last checkpoint writes the numbers it would have written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rolltree.control.ledger import Budget
from rolltree.credit.fold import Folded, expand, fold, leaf_weights, write
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.random import mix
from rolltree.policy.publish import weights_of
from rolltree.recipe.recipe import Parts
from rolltree.task.protocol import Task
from rolltree.train.collect import Cursor, Harvest, collect
from rolltree.train.config import TrainConfig
from rolltree.train.evaluate import evaluate
from rolltree.train.fates import account_numbers, outcomes, settle_fates, settle_rest
from rolltree.train.growth import growth
from rolltree.train.steering import Steering
from rolltree.train.step import Learner, StepKnobs
from rolltree.train.weigh import prompt_weighted
from rolltree.tree import Tree
from rolltree.tree.table import table


@dataclass(frozen=True, slots=True)
class Live:
    """Something that happened in a run, as it happens: for progress, the doctor and the viewer."""

    kind: str
    """start, grown, trained, evaluated, checkpoint, stop."""
    step: int
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    trees: tuple[Tree, ...] = ()
    note: str = ""


Listen = Callable[[Live], None]


@dataclass(slots=True)
class Spent:
    """What a run has used up, earlier parts of a resumed run included."""

    decoded: int = 0
    prefilled: int = 0
    env_steps: int = 0
    judge_calls: int = 0
    leaves: int = 0
    seconds: float = 0.0

    def add(self, budget: Budget) -> dict[str, float]:
        """Book a step's budget; returns what it spent."""
        spent = budget.spent
        numbers = {n: getattr(spent, n) for n in ("leaves", "decoded", "prefilled", "env_steps", "judge_calls")}
        for name, value in numbers.items():
            setattr(self, name, getattr(self, name) + value)
        return {f"spent.{n}": float(v) for n, v in numbers.items()}


@dataclass(slots=True)
class Loop:
    """The moving parts of a run."""

    recipe: Parts
    engine: Engine
    task: Task
    learner: Learner
    config: TrainConfig
    cursor: Cursor
    listen: Listen = lambda _: None
    done: int = 0
    """Steps finished."""
    version: int = 0
    """Version under which the engine has the current weights."""
    spent: Spent = field(default_factory=Spent)
    steering: Steering = field(init=False)
    """The recipe's control with what it has learned."""

    def __post_init__(self) -> None:
        self.steering = Steering(self.recipe.control)

    @property
    def limit(self) -> int:
        """Most policy tokens per path."""
        return self.config.max_tokens or self.task.max_tokens

    async def publish(self) -> None:
        """Give the engine the current weights, under the number of finished steps unless it has counted further."""
        self.version = max(self.done, self.engine.version + 1)
        await self.engine.update_weights(weights_of(self.learner.policy), self.version)

    async def step(self) -> tuple[dict[str, float], list[Tree]]:
        """One step; returns its metrics and everything it grew."""
        c, clock = self.config, _Clock()
        budget = Budget(name=f"step {self.done + 1}")
        harvest = await collect(
            self.recipe, self.engine, self.cursor, c.prompts, budget, seed=mix(c.seed, "step", self.done + 1),
            limit=self.limit, sampling=Sampling(temperature=c.temperature), steering=self.steering,
            number=self.done + 1,
        )  # fmt: skip
        budget.check()
        numbers = outcomes(harvest.trees) | growth(harvest.trees) | self.spent.add(budget)
        numbers["rounds"] = float(harvest.rounds)
        numbers |= harvest.numbers
        clock.lap("grow")
        self.listen(Live("grown", self.done + 1, numbers, tuple(harvest.trees)))
        numbers |= self.learn(harvest, clock)
        self.done += 1
        await self.publish()
        clock.lap("publish")
        self.spent.seconds += sum(clock.laps.values())
        numbers |= account_numbers(harvest.trees)
        numbers |= {"decoded": float(self.spent.decoded)}
        numbers |= {f"seconds.{k}": v for k, v in clock.laps.items()} | {"seconds.total": self.spent.seconds}
        self.listen(Live("trained", self.done, numbers, tuple(harvest.trees)))
        return numbers, harvest.trees

    def learn(self, harvest: Harvest, clock: _Clock) -> dict[str, float]:
        """Credit, fold, pack and update."""
        settle_rest(harvest.dropped)
        view = table(harvest.kept)
        if not len(view.leaf) or not view.live.any():
            settle_rest(harvest.kept)
            return {"trained_tokens": 0.0}
        advantage = prompt_weighted(view, self.recipe.credit(view))
        weights = leaf_weights(
            view, self.recipe.averaging, counted=advantage.counted, fixed_length=self.recipe.fixed_length or self.limit
        )
        folded: Folded = fold(view, advantage, weights, self.recipe.multiplicity)
        paths = expand(view, advantage, weights) if self.recipe.objective.level == "path" else None
        write(view, folded)
        settle_fates(view, weights)
        clock.lap("credit")
        knobs = StepKnobs(
            self.config.token_budget, self.config.log_entropy, self.config.gap_limit, self.config.loss_limit
        )
        numbers = self.learner.step(self.recipe.objective, view, folded, paths, version=self.version, knobs=knobs)
        clock.lap("learn")
        return numbers | {"idle_share": _idle(folded)}

    async def evaluate(self) -> dict[str, float]:
        """Held-out accuracy under the current weights."""
        c, began = self.config, time.perf_counter()
        numbers, forest = await evaluate(
            self.engine, self.task, items=c.eval_items, samples=c.eval_samples, seed=mix(c.seed, "evaluation"),
            limit=self.limit, temperature=c.temperature,
        )  # fmt: skip
        numbers["seconds.evaluate"] = time.perf_counter() - began
        self.listen(Live("evaluated", self.done, numbers, tuple(forest)))
        return numbers

    def over(self) -> str:
        """Why the run is over; "" while it is not."""
        c = self.config
        if self.done >= c.steps:
            return f"all {c.steps} steps are done"
        if c.decoded is not None and self.spent.decoded >= c.decoded:
            return f"{self.spent.decoded:,} tokens were decoded (limit {c.decoded:,})"
        if c.seconds is not None and self.spent.seconds >= c.seconds:
            return f"{self.spent.seconds:.0f} s have passed (limit {c.seconds:g})"
        return ""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold besides weights."""
        return {
            "done": self.done, "cursor": self.cursor.taken, "learner": self.learner.state_dict(),
            "spent": {n: getattr(self.spent, n) for n in Spent.__slots__}, "control": self.steering.state_dict(),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a checkpoint's state; the policy's weights are loaded by the caller."""
        self.done = int(state["done"])
        self.cursor = Cursor(self.task, self.cursor.seed, int(state["cursor"]))
        self.learner.load_state_dict(state["learner"])
        self.spent = Spent(**state["spent"])
        self.steering.load_state_dict(state["control"])


class _Clock:
    """Laps of a step."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._at
        self._at = now


def _idle(folded: Folded) -> float:
    taught = folded.weight > 0
    idle = taught & (folded.gain == 0) & (folded.loss == 0)
    return float(idle.sum() / max(taught.sum(), 1))
