"""Any control under any schedule: what plans ask for is grown, told, trained, and comes back after a restart."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import rolltree
from rolltree.control.order import Delivery, Order
from rolltree.control.plan import Control, Nothing, Plan, Step
from rolltree.control.registry import controls, load_control
from rolltree.control.schedule import PRESETS, OverSample, Resume, Schedule, Stop, TopUp, preset
from rolltree.engine.tabular import TabularEngine
from rolltree.filter.groups import Mixed
from rolltree.recipe.registry import load_recipe
from rolltree.recipe.treepo import SegmentTree
from rolltree.rollout.config import RolloutError
from rolltree.testing.faulty import Flaky
from rolltree.tree import Tree
from rolltree.tree.forest import assert_conserved
from rolltree.tree.store.values import dumps
from tests.rollout.flying import BATCH, SIZE, Flown, fly, moved, new_run, step, tabular
from tests.rollout.test_executor import schedules
from tests.train.test_control import TINY, Told, lenient
from tests.train.toy import KNOBS, Early, tiny_policy


def engine(seed: int = 1) -> TabularEngine:
    return lenient(tabular(shuffle=seed))


def steers(name: str) -> Control:
    return load_control(name, **TINY.get(name, {}))


def check(flown: Flown, *, moved: bool = False) -> None:
    """Every rollout has one usage, every token one place, and the plans were told of all they asked for."""
    scheduler, groups = flown.executor.scheduler, flown.groups
    scheduler.check()
    assert len({g.number for g in groups}) == len(groups), "a group was settled twice"
    assert sorted(r.id for g in groups for r in g.members) == list(range(scheduler.numbers["submitted"]))
    assert not flown.executor.tasks
    flown.executor.budget.check()
    trees = [tree for g in groups for tree in g.item.trees()]
    assert_conserved(trees)
    decoded = sum(len(n) for t in trees for n in t if n.trainable and not n.forced)
    assert decoded == flown.executor.budget.spent.decoded or moved, "a run counts what it spent itself"
    for batch in flown.trained:
        assert len(batch) == BATCH
        for group in batch:
            assert group.item.for_training, "what was asked for to measure is not trained"
            assert group.full
            assert not group.item.slots, "nothing is trained before its plan knows of it"


@pytest.mark.parametrize("schedule", PRESETS)
@pytest.mark.parametrize("control", list(controls()))
def test_every_control_under_every_preset(control: str, schedule: str) -> None:
    flown = fly(preset(schedule), task=Told(), engine=engine(), control=steers(control))
    check(flown)
    assert flown.executor.queue.plans.begun >= 5
    assert flown.executor.control.history.arms, "what came is remembered"
    if schedule == "sync":
        assert all(g.staleness == 0 for b in flown.trained for g in b), "nothing is trained late"


@pytest.mark.papers("april", "dart")
@pytest.mark.parametrize("schedule", ["areal", "april", "dart"])
@pytest.mark.parametrize("control", list(controls()))
def test_every_control_over_trees_that_cannot_be_cut(control: str, schedule: str) -> None:
    flown = fly(preset(schedule), task=Told(), engine=engine(), strategy=SegmentTree(4, 3), control=steers(control))
    check(flown)


@pytest.mark.papers("hbpo")
@settings(max_examples=10, deadline=None)
@given(schedules, st.sampled_from(sorted(controls())), st.booleans(), st.integers(0, 2**16), st.integers(0, 12))
# A spare of one part was the last that a recalled group waited for.
@example(
    Schedule(OverSample(2.0), Stop(window=1.5, abort=True, spare=1), Resume("keep", "interrupt")), "hbpo", False, 2, 0
)
def test_any_control_under_any_schedule(
    schedule: Schedule, control: str, filtered: bool, seed: int, ticks: int
) -> None:
    filters = (Mixed(),) if filtered else ()
    try:
        flown = fly(
            schedule, task=Told(), engine=engine(seed), control=steers(control), filters=filters, seed=seed,
            ticks=ticks, updates=3,
        )  # fmt: skip
    except RolloutError as error:
        if not filtered or "groups in a row were dropped" not in str(error):
            raise
    else:  # hints may solve everything, and the filter then keeps nothing
        check(flown)


@settings(max_examples=10, deadline=None)
@given(schedules, st.sampled_from(sorted(controls())), st.sampled_from(("engine", "verify")), st.integers(0, 2**16))
def test_failures_under_a_control_are_told_to_it(schedule: Schedule, control: str, part: str, seed: int) -> None:
    task = Flaky(Told(), part)  # type: ignore[arg-type]
    made = engine(seed)
    flown = fly(
        schedule, task=task, engine=task.engine(made) if part == "engine" else made, control=steers(control), seed=seed,
        updates=3,
    )  # fmt: skip
    check(flown)
    assert task.raised


@pytest.mark.papers("dots")
@settings(max_examples=12, deadline=None)
@given(schedules, st.sampled_from(sorted(controls())), st.integers(0, 2**16))
# A spare was held when its group went.
@example(Schedule(TopUp(1.0), Stop(spare=1), Resume("keep", "interrupt")), "dots", 0)
def test_plans_under_way_come_back_after_a_restart(schedule: Schedule, control: str, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "rolltree.rollout.plan_runs.STATE_COPY_EVERY", 1 + seed % 4
        )  # copies are rare in runs of a thousand steps
        parked(schedule, control, seed)


def parked(schedule: Schedule, control: str, seed: int) -> None:
    made = engine(seed)

    async def run() -> Flown:
        flown = new_run(schedule, Told(), made, seed=seed, control=steers(control))
        with TemporaryDirectory() as folder:
            for version in range(1, 6):
                await step(flown, made, version)
                before = flown.executor
                flown = await moved(
                    flown, Path(folder) / str(version), schedule, Told(), made, seed=seed, control=steers(control)
                )
                after = flown.executor
                assert after.scheduler.state_dict() == before.scheduler.state_dict()
                assert dumps(after.queue.plans.state()) == dumps(before.queue.plans.state())
                assert after.control.state_dict() == before.control.state_dict()
        await flown.executor.close()
        return flown

    flown = asyncio.run(run())
    check(flown, moved=True)
    assert len(flown.trained) == 5


def written(batches: list[Any]) -> list[Any]:
    trees: list[Tree] = [g.item.tree for b in batches for g in b]
    return [(t.id, t.root.scores, [(n.actions.tolist(), n.usage, n.scores) for n in t]) for t in trees]


@pytest.mark.parametrize("control", sorted({*controls()} - {"uniform"}))
def test_a_restart_changes_nothing_that_comes_later(control: str, tmp_path: Path) -> None:
    """In step with the engine nothing depends on timing: a run that was written down repeats the one that was not."""

    def run(restart: bool) -> list[Any]:
        made, schedule = engine(), preset("sync")

        async def go() -> list[Any]:
            flown = new_run(schedule, Told(), made, control=steers(control))
            for version in range(1, 6):
                await step(flown, made, version)
                if restart:
                    flown = await moved(flown, tmp_path / str(version), schedule, Told(), made, control=steers(control))
            await flown.executor.close()
            return flown.trained

        return written(asyncio.run(go()))

    assert run(True) == run(False)


DRAWS = iter(range(1000))


@dataclass(frozen=True)
class Fickle:
    """A control that draws from somewhere else."""

    needs = frozenset()

    def start(self) -> list[int]:
        return []

    def plan(self, step: Step, state: list[int]) -> Plan:
        state.append(next(DRAWS))
        yield [Order(p, last=True) for p in step.take()]


def test_a_control_that_does_not_repeat_itself_is_refused_after_a_restart(tmp_path: Path) -> None:
    made = engine()

    async def run() -> None:
        flown = new_run(preset("areal"), Told(), made, control=Fickle())
        await step(flown, made, 1)
        try:
            await moved(flown, tmp_path / "parked", preset("areal"), Told(), made, control=Fickle())
        finally:
            await flown.executor.close()

    with pytest.raises(RolloutError, match=r"Fickle does not come back .* draw from `step.rng` alone"):
        asyncio.run(run())


@dataclass(frozen=True)
class Asking:
    """Two rounds: everybody, then more of those who failed. Writes down what it was told."""

    told: list[list[Delivery]]
    needs = frozenset()

    def start(self) -> Nothing:
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        first = yield [Order(p) for p in step.take()]
        self.told.append(list(first))
        second = yield [Order(d.order.prompt, 2, last=True) for d in first if d.n and not d.solved]
        self.told.append(list(second))


class Checking:
    """Trains on its prompts, then measures the same ones again."""

    needs = frozenset()

    def start(self) -> Nothing:
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        prompts = step.take()
        yield [Order(p) for p in prompts]
        yield [Order(p, 1, for_training=False) for p in prompts]


@pytest.mark.parametrize("schedule", ["sync", "areal"])
def test_a_plan_that_ends_with_a_measurement_lets_go_of_what_it_trains(schedule: str) -> None:
    flown = fly(preset(schedule), task=Told(), engine=engine(), control=Checking(), updates=2)
    check(flown)
    assert [len(batch) for batch in flown.trained] == [BATCH, BATCH]


@pytest.mark.papers("april")
@pytest.mark.parametrize("schedule", ["areal", "april", "verl"])
def test_groups_wait_for_a_plan_that_looks_and_grow_by_what_it_asks(schedule: str) -> None:
    told: list[list[Delivery]] = []
    flown = fly(preset(schedule), task=Told(), engine=engine(), control=Asking(told), updates=6)
    check(flown)
    groups = [g for b in flown.trained for g in b]
    assert any(g.size > SIZE for g in groups)
    for group in groups:
        leaves = [leaf for leaf in group.item.tree.leaves() if not leaf.usage]
        assert len(leaves) == group.size
        solved = [any(r.done and r.part == part for r in group.members) for part in range(len(group.wanted))]
        assert all(solved)
        asked = [e for e in group.item.tree.events if e.kind == "allocate"]
        assert len(asked) == (group.size > SIZE)
    later = [d for second in told[1::2] for d in second]
    assert any(d.n == 2 for d in later)


def test_a_plan_that_looks_begins_as_a_whole_and_exceeds_admission_by_no_more() -> None:
    flown = fly(preset("areal"), task=Told(), engine=engine(), control=Asking([]), updates=4)
    bound = (preset("areal").admission.staleness + 1) * BATCH  # type: ignore[attr-defined]
    for version in range(5):
        born = [g for g in flown.groups if g.born <= version and (g.staleness < 0 or g.born + g.staleness >= version)]
        assert len(born) <= bound + BATCH


@pytest.mark.papers("guide")
def test_a_hint_under_changing_weights_is_trained_as_the_policy_reads_it(tmp_path: Path) -> None:
    control = load_control("guide", template="{hint}", always=True)
    recipe = replace(load_recipe("grpo", group=4).build(), control=control)
    seen: list[Tree] = []

    def listen(live: Any) -> None:
        seen.extend(live.trees if live.kind == "trained" else ())

    knobs = {**KNOBS, "eval_every": 0, "forests_every": 0, "scheduler": "areal", "steps": 4}
    done = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "run", listen=listen, **knobs)
    guided = [
        n
        for t in seen
        for n in t
        if n.trainable and len(n) and n.sampling_logprob is not None and (n.sampling_logprob != n.logp).any()
    ]
    assert guided, "what was sampled under a hint keeps that distribution beside the log-prob under the bare prompt"
    told = [line for line in done.metrics if "budget/groups" in line]
    assert told, "a plan that ended says where its budget went, in the step after it"
    assert sum(line["budget/arm/guided"] for line in told) > 0
