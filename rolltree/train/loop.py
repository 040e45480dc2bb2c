"""The training loop: grow → filter → credit → fold → pack → objective → step → publish, over and over.

Everything a step draws follows from (run seed, step) and the task's cursor, so a run that was killed anywhere and
resumed from its last checkpoint writes the numbers it would have written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rolltree.control.ledger import RESOURCES, Budget
from rolltree.control.ledger import Spent as BudgetSpent
from rolltree.control.schedule import Schedule
from rolltree.credit.fold import Folded, expand, fold, leaf_weights, write
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.random import mix
from rolltree.metrics.registry import without_zeros
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.staleness import staleness
from rolltree.metrics.step import grown_metrics, trained_metrics
from rolltree.metrics.usage import settle_rest, settle_usage
from rolltree.objective.hooks import at_step
from rolltree.policy.publish import weights_of
from rolltree.policy.team import release_team
from rolltree.recipe.recipe import Parts
from rolltree.replay.admission import room
from rolltree.replay.harvest import Harvest
from rolltree.replay.recall import Past
from rolltree.replay.waiting import Waiting
from rolltree.task.protocol import Task
from rolltree.train.backward import StepKnobs
from rolltree.train.collect import Cursor, collect
from rolltree.train.config import TrainConfig
from rolltree.train.evaluate import evaluate
from rolltree.train.flight import Flight
from rolltree.train.gather import check_mismatch
from rolltree.train.overlap import Overlap
from rolltree.train.peers import PeerPolicy, written_by
from rolltree.train.readings import Readings
from rolltree.train.scheduled import corrected, fitted, schedule_of
from rolltree.train.steering import Steering
from rolltree.train.step import Learner
from rolltree.train.weigh import prompt_weighted
from rolltree.tree import Forest, Tree
from rolltree.tree.table import table


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened in a run, as it happens: for progress, the doctor and the viewer."""

    kind: str
    """start, grown, trained, evaluated, checkpoint, stop."""
    step: int
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    trees: tuple[Tree, ...] = ()
    note: str = ""


LAPS = ("grow", "credit", "learn", "stop", "publish")
"""What the time of a step is made of."""
Listen = Callable[[RunEvent], str | None]
"""Told of everything that happens; what it answers is said and logged with the step."""


@dataclass(slots=True)
class RunTotals:
    """What a run has used up, earlier parts of a resumed run included."""

    decoded: int = 0
    prefilled: int = 0
    env_steps: int = 0
    judge_calls: int = 0
    leaves: int = 0
    seconds: float = 0.0

    def add(self, budget: Budget, before: BudgetSpent | None = None) -> dict[str, float]:
        """Book what a step's budget spent, since `before` where it is not the step's own; returns it."""
        spent = budget.spent
        numbers = {n: getattr(spent, n) - (getattr(before, n) if before else 0) for n in RESOURCES}
        for name, value in numbers.items():
            setattr(self, name, getattr(self, name) + value)
        return {f"budget/{n}": float(v) for n, v in numbers.items()}


@dataclass(slots=True)
class Loop:
    """The moving parts of a run."""

    recipe: Parts
    engine: Engine
    task: Task
    learner: Learner
    config: TrainConfig
    cursor: Cursor
    readings: Readings = field(default_factory=Readings)
    """What the credit reads of models other than the policy."""
    listen: Listen = lambda _: None
    done: int = 0
    """Steps finished."""
    version: int = 0
    """Version under which the engine has the current weights."""
    spent: RunTotals = field(default_factory=RunTotals)
    peers: Mapping[str, PeerPolicy] = field(default_factory=dict[str, PeerPolicy])
    """Other policies by the actor they write as."""
    waiting: Waiting = field(default_factory=Waiting)
    """Batches that were grown and not yet trained."""
    past: Past = field(default_factory=Past)
    """Batches that were trained and may be recalled."""
    steering: Steering = field(init=False)
    """The recipe's control with what it has learned."""
    overlap: Overlap | None = field(init=False)
    """Rollouts under a schedule; None = batch after batch."""
    said: str = ""
    """How the schedule was changed to fit the recipe."""
    _booked: BudgetSpent | None = None

    def __post_init__(self) -> None:
        self.steering = Steering(self.recipe.control)
        schedule = schedule_of(self.recipe, self.config)
        self.overlap = None if schedule is None else self._overlap(schedule)

    def _overlap(self, schedule: Schedule) -> Overlap:
        fit, way, self.said = fitted(schedule, self.recipe, self.config)
        self.recipe = replace(self.recipe, objective=corrected(self.recipe.objective, fit.correction))
        return Overlap(Flight(self.recipe, self.engine, self.task, self.config, fit, way, self.steering, self.cursor))

    @property
    def limit(self) -> int:
        """Most policy tokens per path."""
        return self.config.max_tokens or self.task.max_tokens

    async def publish(self) -> None:
        """Give the engine the current weights, under the number of finished steps unless it has counted further."""
        self.version = max(self.done, self.engine.version + 1)
        flying = self.overlap is not None and bool(self.overlap.flight.tasks)
        if flying:
            await self.engine.pause()
        await self.engine.update_weights(weights_of(self.learner.policy), self.version)
        if flying:
            await self.engine.resume()
        for peer in self.peers.values():
            await peer.publish(self.done)

    async def step(self) -> tuple[dict[str, float], list[Tree]]:
        """One step; returns its metrics and everything that was settled in it."""
        clock = _Clock()
        if self.overlap is not None:
            return await self._overlapped(self.overlap, clock)
        budget = Budget(name=f"step {self.done + 1}")
        grown = await self.grow(budget)
        budget.check()
        fresh = [tree for harvest in grown for tree in harvest.trees]
        numbers = grown_metrics(fresh) | self.spent.add(budget)
        numbers["rollout/rounds"] = float(sum(harvest.rounds for harvest in grown))
        # Some numbers exist in some batches only: those of an arm that was not needed every time.
        told = {key: [h.numbers[key] for h in grown if key in h.numbers] for h in grown for key in h.numbers}
        numbers |= {key: float(np.mean(values)) for key, values in told.items()}
        clock.lap("grow")
        self.listen(RunEvent("grown", self.done + 1, numbers, tuple(fresh)))
        harvest = self.waiting.take()
        numbers |= self.learn(harvest, clock)
        self._finish()
        numbers["rollout/waiting"] = float(self.waiting.leaves)
        return await self._published(harvest, numbers, clock)

    async def _overlapped(self, overlap: Overlap, clock: _Clock) -> tuple[dict[str, float], list[Tree]]:
        """One step while rollouts go on; its batch may be of several versions."""
        harvest = await overlap.harvest(self.version, self.recalls(self.done))
        numbers = grown_metrics(harvest.trees) | harvest.numbers
        clock.lap("grow")
        self.listen(RunEvent("grown", self.done + 1, numbers, tuple(harvest.trees)))
        numbers |= await overlap.learn(lambda: self.learn(harvest, clock))
        self._finish()
        numbers |= await overlap.trained()
        clock.lap("stop")
        budget = overlap.flight.budget
        budget.check()
        numbers |= self.spent.add(budget, self._booked) | {
            "rollout/rounds": 1.0, "rollout/waiting": float(overlap.waiting),
        }  # fmt: skip
        self._booked = budget.spent
        return await self._published(harvest, numbers, clock)

    def _finish(self) -> None:
        self.done += 1
        if self.done == self.recipe.reanchor:
            self.learner.reanchor("reference")

    async def _published(
        self, harvest: Harvest, numbers: dict[str, float], clock: _Clock
    ) -> tuple[dict[str, float], list[Tree]]:
        """Publish, and complete the step's numbers."""
        await self.publish()
        clock.lap("publish")
        self.spent.seconds += sum(clock.laps.values())
        # What a schedule says of unfinished rollouts goes before what the batch alone can tell.
        numbers = trained_metrics(harvest.trees, harvest.version) | numbers
        numbers["budget/decoded_total"] = float(self.spent.decoded)
        numbers |= {f"time/{k}": v for k, v in clock.laps.items()} | {"time/total": self.spent.seconds}
        numbers = without_zeros(numbers)
        self.listen(RunEvent("trained", self.done, numbers, tuple(harvest.trees)))
        return numbers, harvest.trees

    async def grow(self, budget: Budget) -> list[Harvest]:
        """Grow as many batches as may run ahead of the weights; each waits for its turn."""
        c, grown = self.config, list[Harvest]()
        while room(c.staleness, version=self.done, submitted=self.done + len(self.waiting)):
            number = self.done + len(self.waiting)
            recalls = self.recalls(number)
            harvest = await collect(
                self.recipe, self.engine, self.cursor, c.prompts - recalls, budget,
                seed=mix(c.seed, "step", number + 1), limit=self.limit, sampling=Sampling(temperature=c.temperature),
                steering=self.steering, number=number + 1, version=self.version,
                peers={name: peer.engine for name, peer in self.peers.items()},
            )  # fmt: skip
            harvest.recalls = recalls
            self.waiting.put(harvest)
            grown.append(harvest)
        return grown

    def recalls(self, step: int) -> int:
        """How many trees of the batch with this number, from 0, are to come from earlier steps."""
        recall = self.recipe.recall
        return recall.count(self.config.prompts, step, len(self.past.trees)) if recall else 0

    def learn(self, harvest: Harvest, clock: _Clock) -> dict[str, float]:
        """Credit, fold, pack and update."""
        settle_rest(harvest.dropped)
        # Batches that waited were grown when the past held other trees; it may hold fewer now.
        recalls = min(harvest.recalls, len(self.past.trees))
        again = self.past.draw(recalls, mix(self.config.seed, "recall", self.done + 1))
        for tree in again:
            tree.root.scores["recalled"] = 1.0
        if self.recipe.recall:
            self.past.remember(harvest, self.recipe.recall)
        view = table([*harvest.kept, *again])
        if not len(view.leaf) or not view.live.any():
            settle_rest(harvest.kept)
            return {"budget/trained": 0.0}
        self.readings.write(view, self.config.token_budget)
        advantage = prompt_weighted(view, self.recipe.credit(view))
        weights = leaf_weights(
            view, self.recipe.averaging, counted=advantage.counted, fixed_length=self.recipe.fixed_length or self.limit
        )
        objective = at_step(self.recipe.objective, self.done)
        folded: Folded = fold(view, advantage, weights, self.recipe.multiplicity)
        paths = expand(view, advantage, weights) if objective.level == "path" else None
        write(view, folded)
        settle_usage(view, weights)
        clock.lap("credit")
        knobs = StepKnobs(
            self.config.token_budget, self.config.log_entropy, self.config.mismatch_limit, self.config.loss_limit,
            self.config.held,
        )  # fmt: skip
        mine = written_by(view, folded, self.peers, others=True) if self.peers else folded
        numbers = self.learner.step(objective, view, mine, paths, version=self.version, knobs=knobs)
        check_mismatch(numbers, self.config)
        for name, peer in self.peers.items():
            if peer.learner is not None:
                own = written_by(view, folded, [name])
                told = peer.learner.step(objective, view, own, None, version=peer.version, knobs=knobs)
                numbers |= {f"{name}/{key}": value for key, value in told.items()}
        numbers |= self.readings.learn(view, self.config.token_budget, again)
        release_team()
        clock.lap("learn")
        if again:
            numbers["rollout/recalled_groups"] = float(len(again))
        numbers |= staleness(Rollouts(view, self.version))
        return numbers | {"policy/zero_advantage": _zero_advantage(folded)}

    async def evaluate(self) -> dict[str, float]:
        """Held-out accuracy under the current weights, of each trained policy by itself."""
        began = time.perf_counter()
        numbers, forest = await self._evaluated(self.engine)
        for name, peer in self.peers.items():
            if peer.learner is not None:
                theirs, _ = await self._evaluated(peer.engine)
                numbers |= {f"{name}/{key}": value for key, value in theirs.items()}
        numbers["time/evaluate"] = time.perf_counter() - began
        self.listen(RunEvent("evaluated", self.done, numbers, tuple(forest)))
        return numbers

    async def _evaluated(self, engine: Engine) -> tuple[dict[str, float], Forest]:
        c = self.config
        return await evaluate(
            engine, self.task, items=c.eval_items, samples=c.eval_samples, seed=mix(c.seed, "evaluation"),
            limit=self.limit, temperature=c.temperature,
        )  # fmt: skip

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
            "readings": self.readings.state_dict(),
            "spent": {n: getattr(self.spent, n) for n in RunTotals.__slots__},
            "peers": {name: peer.state() for name, peer in self.peers.items()},
            "control": self.steering.state_dict(),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a checkpoint's state; the policy's weights are loaded by the caller."""
        self.done = int(state["done"])
        self.cursor.rewind(int(state["cursor"]))
        self.learner.load_state_dict(state["learner"])
        # Checkpoints from before there were any hold none, and recipes of that time ask for none.
        self.readings.load_state_dict(state.get("readings", {}))
        self.spent = RunTotals(**state["spent"])
        for name, peer in self.peers.items():
            peer.restore(state["peers"][name])
        self.steering.load_state_dict(state["control"])

    def save_buffers(self, folder: Path) -> None:
        """Write what waits and what may be recalled beside a checkpoint's state."""
        self.waiting.save(folder / "waiting")
        self.past.save(folder / "past")
        if self.overlap is not None and self.done:
            self.overlap.save(folder / "under-way")

    def load_buffers(self, folder: Path) -> None:
        """Go back to what was written."""
        self.waiting.load(folder / "waiting")
        self.past.load(folder / "past")
        if self.overlap is not None:
            self.overlap.load(folder / "under-way")

    async def rest(self) -> None:
        """Let nothing grow that could be cut, so that a checkpoint holds it as it stands."""
        if self.overlap is not None:
            await self.overlap.flight.rest()

    async def close(self) -> None:
        """End what is under way."""
        if self.overlap is not None:
            await self.overlap.close()


class _Clock:
    """Laps of a step."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._at
        self._at = now


def _zero_advantage(folded: Folded) -> float:
    taught = folded.weight > 0
    idle = taught & (folded.gain == 0) & (folded.loss == 0)
    return float(idle.sum() / max(taught.sum(), 1))
