"""Every schedule under random work: nothing is lost, no promise is broken, nothing depends on luck."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rolltree.control.schedule import (
    PRESETS,
    Ahead,
    Group,
    OverSample,
    Resume,
    Schedule,
    Scheduler,
    StalenessBound,
    Stop,
)  # fmt: skip
from studies.clock.arms import AGENTS, ARMS
from studies.clock.hardware import Hardware
from studies.clock.measure import Batches, lower_bound
from studies.clock.work import Constant, LogNormal, Pareto, Workload
from studies.clock.world import ClockWorld, simulate
from tests.control.schedules import SCHEDULES

BATCH, SIZE = 4, 3

works = st.builds(
    Workload,
    distribution=st.sampled_from((LogNormal(60, 1.2), Pareto(20, 1.3), Constant(40))),
    cap=st.just(2000),
    alike=st.floats(0, 1),
    turns=st.integers(1, 3),
    wait=st.sampled_from((0.0, 0.5)),
    failing=st.sampled_from((0.0, 0.1)),
    seed=st.integers(0, 2**20),
)


def played(schedule: Schedule, work: Workload, engines: int = 2, updates: int = 5, colocated: bool = False, **also):
    """A world, its scheduler and all groups in order of being settled."""
    world = ClockWorld(Hardware(engines, slots=8, plateau=0.02, per_sequence=0.005, sync=0.5, colocated=colocated))
    groups: list[Group] = []
    told = simulate(schedule, world, work, updates=updates, batch=BATCH, size=SIZE, on_settled=groups.append, **also)
    return world, told, groups


def check_accounts(world: ClockWorld, told: Scheduler, groups: list[Group]) -> None:
    """Every submitted rollout has one usage, every decoded token one place."""
    rollouts = [r for g in groups for r in g.members]
    assert len({g.number for g in groups}) == len(groups), "a group was settled twice"
    assert sorted(r.id for r in rollouts) == list(range(told.numbers["submitted"]))
    fates = Counter(r.usage for r in rollouts)
    assert fates == Counter({k: n for k, n in told.numbers.items() if k != "submitted"})
    assert all(f in ("trained", "carried", "failed") or f.startswith("dropped: ") for f in fates)
    assert world.decoded == sum(told.tokens.values())
    assert not world.trips
    assert not told.running
    for group in groups:
        if group.usage == "trained":
            assert [r.usage for r in group.kept] == ["trained"] * SIZE
            jobs = group.item.jobs
            assert all(r.tokens == sum(jobs[r.index % len(jobs)].turns) for r in group.kept)
            assert all(r.segments == sorted(r.segments, key=lambda s: s.version) for r in group.kept)
            assert min(s.version for r in group.kept for s in r.segments) >= group.born


@settings(max_examples=25, deadline=None)
@given(SCHEDULES, works)
@example(
    Schedule(
        OverSample(2.0), Stop("created", 1.0, True, 0), Resume("keep", "interrupt"), StalenessBound(None, "drop", False)
    ),
    Workload(LogNormal(60, 1.2), cap=2000, alike=0.0, turns=1, wait=0.0, failing=0.0, seed=0),
)
@example(  # the last to be stopped is a spare, and a window waits for what is paused
    Schedule(
        OverSample(2.5), Stop("created", 1.0, True, 1), Resume("turn", "interrupt"), StalenessBound(None, "drop", False)
    ),
    Workload(LogNormal(60, 1.2), cap=2000, alike=0.75, turns=1, wait=0.0, failing=0.1, seed=17684),
)
def test_conservation_under_any_schedule(schedule: Schedule, work: Workload):
    world, told, groups = played(schedule, work)
    check_accounts(world, told, groups)
    assert sum(g.usage == "trained" for g in groups) >= 5 * BATCH
    if schedule.age.most is not None:
        assert max(g.staleness for g in groups) <= schedule.age.most


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 3), works, st.sampled_from(("interrupt", "wait", "run on")), st.sampled_from((None, 1.0, 1.4)))
def test_the_gate_is_never_exceeded_and_nothing_is_dropped_for_it(most, work, update, window):
    schedule = Schedule(Ahead(most), Stop(window=window), Resume(update=update), StalenessBound(most, "wait"))
    world, told, groups = played(schedule, work, updates=7)
    check_accounts(world, told, groups)
    assert max(g.staleness for g in groups) <= most
    assert all(g.usage in ("trained", "carried", "dropped: failures") for g in groups)


def test_counting_at_submission_alone_does_not_bound_the_lag():
    work = Workload(Pareto(20, 1.0), cap=20_000, seed=3)
    _, _, counted = played(Schedule(Ahead(1)), work, updates=12)
    _, _, gated = played(Schedule(Ahead(1), age=StalenessBound(1, "wait")), work, updates=12)
    assert max(g.staleness for g in counted) > 1 == max(g.staleness for g in gated)


@settings(max_examples=12, deadline=None)
@given(works, st.sampled_from((1.0, 1.5, 2.0)))
def test_a_window_bounds_how_many_overtake(work, window):
    _, _, groups = played(Schedule(Ahead(3), Stop(window=window)), work, updates=6)
    order = [g.number for g in groups if g.usage == "trained"]
    unsettled = {g.number for g in groups if g.usage == "carried"}
    for place, number in enumerate(order):
        assert sum(n > number for n in order[:place]) < window * BATCH
    for number in unsettled:
        assert sum(n > number for n in order) < window * BATCH


# A rollout here is stopped twice while it waits for one answer of its environment.
@example("areal", Workload(Pareto(20, 1.3), alike=0.625, cap=2000, turns=3, wait=0.5, seed=3))
@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(PRESETS)), works)
def test_no_run_is_faster_than_its_bound(name, work):
    colocated = name in ("sync", "april")
    batches = Batches(0)
    world = ClockWorld(Hardware(2, slots=8, per_sequence=0.005, sync=0.5, colocated=colocated))

    def told(group: Group) -> None:
        if group.usage == "trained":
            batches.add(group, world.now, world.hardware)

    simulate(PRESETS[name], world, work, updates=4, batch=BATCH, size=SIZE, on_settled=told)
    assert world.now >= lower_bound(batches, world.hardware, world.training) * (1 - 1e-6)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_same_arguments_give_the_same_run(name):
    def story():
        world, told, groups = played(PRESETS[name], Workload(LogNormal(60, 1.2), cap=2000, failing=0.05))
        return world.now, world.decoded, dict(told.numbers), [(g.number, g.usage, g.staleness, g.began) for g in groups]

    assert story() == story()


@pytest.mark.parametrize("arm", [*ARMS.values(), *AGENTS.values()], ids=[*ARMS, *AGENTS])
def test_every_arm_keeps_its_accounts(arm):
    work = Workload(LogNormal(60, 1.0), cap=2000, turns=2, wait=0.3, seed=5)
    check_accounts(*played(arm.schedule, work, engines=3, updates=6, colocated=arm.colocated))


def test_filtered_groups_give_their_place_back():
    schedule = Schedule(Ahead(0))
    world, told, groups = played(
        schedule, Workload(LogNormal(60, 1.0), cap=2000), accept=lambda g: g.number % 3 != 0, updates=6
    )
    check_accounts(world, told, groups)
    assert told.numbers["dropped: filter"] > 0
    assert all(g.staleness == 0 for g in groups if g.usage == "trained")


def test_a_group_of_failures_is_given_up_and_the_others_go_on():
    world, told, groups = played(PRESETS["areal"], Workload(Constant(40), failing=0.5, seed=1))
    check_accounts(world, told, groups)
    assert told.numbers["failed"] > 0
    assert told.numbers["dropped: failures"] > 0


def test_masked_tokens_are_context_and_not_trained():
    work = Workload(Pareto(30, 1.0), cap=5000, seed=2)
    areal = replace(PRESETS["areal"], resume=Resume("mask"))
    world, told, groups = played(areal, work, updates=8)
    check_accounts(world, told, groups)
    assert told.tokens["masked"] > 0
    for rollout in (r for g in groups if g.usage == "trained" for r in g.kept):
        assert len({s.version for s in rollout.segments}) > 1 or not rollout.masked
