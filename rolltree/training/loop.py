"""The training loop: grow → filter → credit → fold → pack → objective → step → publish, over and over.

Everything a step draws follows from (run seed, step) and the task's cursor, so a run that was killed anywhere and
resumed from its last checkpoint writes the numbers it would have written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from rolltree.control.ledger import Spent as BudgetSpent
from rolltree.credit.fold import Expanded, Folded, expand, fold, leaf_weights, prompt_weighted, write
from rolltree.engine.protocol import Counting, Engine, Forgetful
from rolltree.generate.random import mix
from rolltree.generate.strategy import TreeStrategy
from rolltree.knobs.varying import OVER, schedules
from rolltree.metrics.policy import staleness
from rolltree.metrics.registry import without_zeros
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.step import grown_metrics, trained_metrics
from rolltree.metrics.usage import settle_rest, settle_usage
from rolltree.objective.batch import Objective
from rolltree.policy.device import release_team
from rolltree.policy.publish import weights_of
from rolltree.policy.training import TURNS
from rolltree.recipe.compose import Course
from rolltree.recipe.recipe import Parts
from rolltree.replay.buffer import ReplayBuffer, RolloutBatch
from rolltree.rollout.collector import Collector
from rolltree.rollout.config import ControlState
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.executor import RolloutExecutor
from rolltree.rollout.scheduled import fitted, schedule_of
from rolltree.rollout.underway import all_failed
from rolltree.task.protocol import Task
from rolltree.training.backward import StepKnobs
from rolltree.training.config import TrainConfig
from rolltree.training.evaluate import evaluate
from rolltree.training.learner import corrected
from rolltree.training.memory import card_to_itself
from rolltree.training.optimizer import optim_at
from rolltree.training.peers import PeerPolicy, paths_by, written_by
from rolltree.training.readings import Readings
from rolltree.training.step import Learner
from rolltree.training.step_metrics import (
    Reread,
    RunTotals,
    StepClock,
    check_mismatch,
    credit_apart,
    followed,
    log_entropies,
)
from rolltree.tree import Forest, Tree
from rolltree.tree.table import Table, table


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened in a run, as it happens: for progress, the doctor and the viewer."""

    kind: str
    """start, growing, grown, trained, evaluating (`done` of `items`), evaluated, checkpoint, stop."""
    step: int
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    trees: tuple[Tree, ...] = ()
    note: str = ""


LAPS = ("grow", "credit", "learn", "stop", "publish")
"""What the time of a step is made of."""
Listen = Callable[[RunEvent], str | None]
"""Told of everything that happens; what it answers is said and logged with the step."""


@dataclass(slots=True)
class Loop:
    """The moving parts of a run."""

    recipe: Parts
    engine: Engine
    task: Task
    learner: Learner
    config: TrainConfig
    cursor: Cursor
    readings: Readings | None = None
    """What the credit reads of models other than the policy; None = nothing."""
    listen: Listen = lambda _: None
    done: int = 0
    """Steps finished."""
    version: int = 0
    """Version under which the engine has the current weights."""
    spent: RunTotals = field(default_factory=RunTotals)
    peers: Mapping[str, PeerPolicy] = field(default_factory=dict[str, PeerPolicy])
    """Other policies by the actor they write as."""
    past: ReplayBuffer = field(default_factory=ReplayBuffer)
    """Batches that were trained and may be recalled."""
    control: ControlState = field(init=False)
    """The recipe's control with what it has learned."""
    collector: Collector = field(init=False)
    """Where batches of rollouts come from."""
    course: Course | None = None
    """The parts at every step; None = `recipe` all along, as where none of its knobs varies."""
    told: dict[str, float] = field(default_factory=dict[str, float])
    """The last step's numbers that some knob follows."""
    said: str = ""
    """How the schedule was changed to fit the recipe."""
    blind: str = ""
    """Where all rollouts of the last evaluation failed: what the first said."""
    _varying: dict[str, str] = field(default_factory=dict[str, str])
    """Every schedule of a knob, the recipe's and the optimizer's."""
    _booked: BudgetSpent | None = None
    _trainer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "rolltree-trainer"))
    """The thread that learns, while rollouts go on."""

    def __post_init__(self) -> None:
        c, self.control = self.config, ControlState(self.recipe.control)
        schedule, unit, self.said = fitted(schedule_of(self.recipe, c.scheduler, c.staleness), self.recipe)
        self.recipe = replace(self.recipe, objective=corrected(self.recipe.objective, schedule.correction))
        self.course = self.course if self.course is not None and self.course.texts else None
        self._varying = ({} if self.course is None else self.course.texts) | schedules(c.optim)
        self.collector = Collector(RolloutExecutor(
            self.recipe, self.engine, self.task, c.rollouts, schedule, unit, self.control, self.cursor,
            {name: peer.engine for name, peer in self.peers.items()},
        ))  # fmt: skip

    def stage(self) -> None:
        """Let knobs that vary take their values for the step that comes."""
        if self.course is not None:
            parts, executor = self.course.at(self.done, self.now), self.collector.executor
            parts = replace(parts, objective=corrected(parts.objective, executor.schedule.correction))
            self.recipe, self.control.control = parts, parts.control
            executor.stage(parts)
        if self._varying:
            for learner in (self.learner, *(p.learner for p in self.peers.values() if p.learner is not None)):
                learner.optim = optim_at(self.config, self.recipe, self.done, self.now)

    @property
    def now(self) -> dict[str, float]:
        """What knobs that vary are told: the last step's numbers, and how much of the run is over."""
        c, spent = self.config, self.spent
        shares = [self.done / c.steps]
        shares += [] if c.decoded is None else [spent.decoded / c.decoded]
        shares += [] if c.seconds is None else [spent.seconds / c.seconds]
        return self.told | {OVER: min(max(shares), 1.0)}

    @property
    def limit(self) -> int:
        """Most policy tokens per path."""
        return self.config.max_tokens or self.task.max_tokens

    async def publish(self) -> None:
        """Give the engine the current weights, under the number of finished steps unless it has counted further."""
        self.version = max(self.done, self.engine.version + 1)
        flying = bool(self.collector.executor.tasks)
        if flying:
            await self.engine.pause()
        await self.engine.update_weights(weights_of(self.learner.policy), self.version)
        if flying:
            await self.engine.resume()
        for peer in self.peers.values():
            await peer.publish(self.done, self.learner.policy)

    async def step(self) -> tuple[dict[str, float], list[Tree]]:
        """One step: a batch is taken, trained while rollouts may go on, and its weights are published.

        Returns the step's metrics and everything that was settled in it.
        """
        clock, processor = StepClock(), time.process_time()
        self.stage()
        self.listen(RunEvent("growing", self.done + 1))
        batch = await self.collector.collect(self.version, self.recalls())
        numbers = grown_metrics(batch.fresh) | batch.numbers
        clock.lap("grow")
        self.listen(RunEvent("grown", self.done + 1, numbers, tuple(batch.fresh)))
        began = time.monotonic()
        async with card_to_itself(self.engine, busy=bool(self.collector.executor.tasks)):
            numbers |= await asyncio.get_running_loop().run_in_executor(self._trainer, self._learn_alone, batch, clock)
        self.done += 1
        numbers |= await self.collector.trained(time.monotonic() - began)
        if not self.collector.lockstep:
            clock.lap("stop")
        numbers |= self._spent() | {"rollout/waiting": float(self.collector.waiting)}
        await self.publish()
        clock.lap("publish")
        self.spent.seconds += sum(clock.laps.values())
        # What a schedule says of unfinished rollouts goes before what the batch alone can tell.
        numbers = trained_metrics(batch.trees, batch.version) | numbers
        numbers["budget/decoded_total"] = float(self.spent.decoded)
        if (epoch := self.cursor.epoch) is not None:
            numbers["budget/epoch"] = epoch
        numbers |= {f"time/{k}": v for k, v in clock.laps.items()} | {"time/total": self.spent.seconds}
        numbers |= {"time/processor": time.process_time() - processor, "budget/flops": self._flops(numbers)}
        if isinstance(self.engine, Counting):
            numbers |= self.engine.numbers
        if self._varying:
            self.told = followed(self._varying, numbers)
        if self.course is not None and self.course.at(self.done, self.now).anchor != self.recipe.anchor:
            self.learner.reanchor("reference")
        numbers = without_zeros(numbers)
        self.listen(RunEvent("trained", self.done, numbers, tuple(batch.trees)))
        return numbers, batch.trees

    def _spent(self) -> dict[str, float]:
        """Book what rollouts have cost since the last step."""
        budget = self.collector.executor.budget
        budget.check()
        numbers = self.spent.add(budget, self._booked)
        self._booked = budget.spent
        return numbers

    def _flops(self, numbers: Mapping[str, float]) -> float:
        """What a step cost: 2 operations a weight and token read or sampled, 6 a token trained in each epoch."""
        weights = sum(p.numel() for p in self.learner.policy.parameters())
        read = numbers["budget/decoded"] + numbers["budget/prefilled"]
        return weights * (2 * read + 6 * numbers.get("budget/packed", 0.0) * self.learner.optim.epochs)

    def recalls(self) -> int:
        """How many trees of the next batch are to come from earlier steps."""
        recall = self.recipe.recall
        return recall.count(self.collector.executor.prompts, len(self.past.trees)) if recall else 0

    def _learn_alone(self, batch: RolloutBatch, clock: StepClock) -> dict[str, float]:
        with TURNS.training():
            return self.learn(batch, clock)

    def learn(self, batch: RolloutBatch, clock: StepClock) -> dict[str, float]:
        """Credit, fold, pack and update; then write on the trees what came of them."""
        # Batches that waited were grown when the past held other trees; it may hold fewer now.
        recalls, recall = min(batch.recalls, len(self.past.trees)), self.recipe.recall
        again = self.past.draw(recalls, mix(self.config.seed, "recall", self.done + 1), recall.order) if recall else []
        for tree in again:
            tree.root.scores["recalled"] = 1.0
        if recall:
            self.past.remember(batch, recall)
        view = table([*batch.kept, *again])
        if not len(view.leaf) or not view.live.any():
            settle_rest(batch.trees)
            return {"budget/trained": 0.0}
        if self.readings is not None:
            self.readings.write(view, self.config.token_budget, self.learner.policy)
        advantage = prompt_weighted(view, self.recipe.credit(view))
        weights = leaf_weights(
            view, self.recipe.averaging, counted=advantage.counted, fixed_length=self.recipe.fixed_length or self.limit
        )
        objective = self.recipe.objective
        folded: Folded = fold(view, advantage, weights, self.recipe.multiplicity)
        paths = None
        if objective.level == "path":
            paths = expand(view, advantage, weights, self.recipe.multiplicity, self.recipe.unit)
        clock.lap("credit")
        reread: list[Reread] = []
        try:
            numbers = self._update(objective, view, folded, paths, reread)
        finally:  # also where it diverges: the offending trees are looked at afterwards
            write(view, folded)
            settle_usage(view, weights)
            settle_rest(batch.trees)
            for read in reread:
                read.write()
        if self.readings is not None:
            numbers |= self.readings.learn(view, self.config.token_budget, again, self.learner.policy)
        release_team()
        clock.lap("learn")
        if again:
            numbers["rollout/recalled_groups"] = float(len(again))
        numbers |= staleness(Rollouts(view, self.version)) | (log_entropies(view) if self.course is not None else {})
        numbers |= credit_apart(view, folded, weights, self.recipe.multiplicity)
        return numbers | {"policy/zero_advantage": _zero_advantage(folded)}

    def _update(
        self, objective: Objective, view: Table, folded: Folded, paths: Expanded | None, reread: list[Reread]
    ) -> dict[str, float]:
        """Update each policy with what it wrote; `reread` collects what they say of it under their weights before."""
        c = self.config
        knobs = StepKnobs(c.token_budget, c.log_entropy, c.mismatch_limit, c.loss_limit, c.held)
        mine = written_by(view, folded, self.peers, others=True) if self.peers else folded
        ours = paths_by(view, paths, self.peers, others=True) if self.peers else paths
        reread.append(Reread(view))
        numbers = self.learner.step(
            objective, view, mine, ours, version=self.version, knobs=knobs, watchers=reread[-1:]
        )
        check_mismatch(numbers, c)
        for name, peer in self.peers.items():
            if peer.learner is not None:
                own, sequences = written_by(view, folded, [name]), paths_by(view, paths, [name])
                reread.append(Reread(view))
                theirs = peer.learner.step(
                    objective, view, own, sequences, version=peer.version, knobs=knobs, watchers=reread[-1:]
                )
                numbers |= {f"{name}/{key}": value for key, value in theirs.items()}
        return numbers

    async def evaluate(self, *, end: bool = False) -> dict[str, float]:
        """Held-out accuracy under the current weights, of each trained policy by itself."""
        began, processor = time.perf_counter(), time.process_time()
        numbers, forest = await self._evaluated(self.engine, end=end)
        self.blind = all_failed(forest)
        for name, strategy in self.recipe.evaluations.items():
            theirs, _ = await self._evaluated(self.engine, strategy, end=end)
            numbers |= {f"{name}/{key}": value for key, value in theirs.items()}
        for name, peer in self.peers.items():
            if peer.learner is not None:
                theirs, _ = await self._evaluated(peer.engine, end=end)
                numbers |= {f"{name}/{key}": value for key, value in theirs.items()}
        # A run that is resumed behind this evaluation has not made it.
        for engine in (self.engine, *(peer.engine for peer in self.peers.values())):
            if isinstance(engine, Forgetful):
                await engine.forget()
        numbers["time/evaluate"] = time.perf_counter() - began
        numbers["time/processor"] = time.process_time() - processor
        self.listen(RunEvent("evaluated", self.done, numbers, tuple(forest)))
        return numbers

    async def _evaluated(
        self, engine: Engine, strategy: TreeStrategy | None = None, *, end: bool
    ) -> tuple[dict[str, float], Forest]:  # fmt: skip
        c = self.config
        items = (c.end_items if end else None) or c.eval_items
        return await evaluate(
            engine, self.task, items=items, samples=c.eval_samples, seed=mix(c.seed, "evaluation"),
            limit=self.limit, temperature=c.temperature, strategy=strategy,
            tell=lambda done, items: self.listen(RunEvent("evaluating", self.done, {"done": done, "items": items})),
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

    def under_way(self, trees: Iterable[Tree]) -> int:
        """Rollouts that have not ended: those that the schedule runs, and those of the last step's trees."""
        paused = sum(leaf.status in ("open", "paused") for tree in trees for leaf in tree.leaves())
        return paused + len(self.collector.executor.scheduler.running)

    async def rest(self) -> None:
        """Let nothing grow that could be cut, so that a checkpoint holds it as it stands."""
        await self.collector.rest()

    async def close(self) -> None:
        """End what is under way."""
        await self.collector.close()
        self._trainer.shutdown()


def _zero_advantage(folded: Folded) -> float:
    taught = folded.weight > 0
    idle = taught & (folded.gain == 0) & (folded.loss == 0)
    return float(idle.sum() / max(taught.sum(), 1))
