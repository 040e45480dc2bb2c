"""Runs small enough to work out on paper: a step takes one second, prefill and training nothing."""

import pytest

from rolltree.control.schedule import Ahead, Offer, OverSample, Resume, Schedule, Stop, TopUp
from rolltree.control.schedule.scheduler import Scheduler
from studies.clock.hardware import Hardware
from studies.clock.work import Constant, Job, LogNormal, WorkItem, Workload
from studies.clock.world import ClockError, ClockWorld, Prompts


def play(schedule, lengths, *, batch, updates, engines=2, slots=1, colocated=True, per_sequence=1.0, sync=0.0, **item):
    """One rollout per group, with these lengths in order."""
    world = ClockWorld(
        Hardware(
            engines, slots=slots, plateau=1.0, per_sequence=per_sequence, prefill=0.0, train=0.0, sync=sync,
            colocated=colocated,
        )
    )  # fmt: skip
    groups = []
    items = [WorkItem((Job((n,), **item),), 0.0) for n in lengths]
    scheduler = Scheduler(schedule, batch)
    prompts = Prompts(lambda k: Offer(items[k], (1,)) if k < len(items) else None, settled=groups.append)
    world.drive(scheduler, prompts, updates)
    return world, scheduler, groups


def numbers(groups, usage="trained"):
    return [g.number for g in groups if g.usage == usage]


def test_gather_all_on_two_engines_waits_for_the_longest():
    # Engines: 0 then 2 then 3 | 1. Tokens 2 + 3 + 1 on the one, 10 on the other.
    world, _, groups = play(Schedule(), [2, 10, 3, 1], batch=4, updates=1)
    assert world.now == pytest.approx(10)
    assert numbers(groups) == [0, 1, 2, 3]


def test_list_scheduling_fills_the_engine_that_is_free_first():
    world, _, _ = play(Schedule(), [4, 1, 4, 1, 3], batch=5, updates=1)
    # 4, then 1 is done at 1 → 4 until 5; first engine 4 → 1 until 5; then 3 until 8.
    assert world.now == pytest.approx(8)


def test_april_carries_the_slow_one_over_and_goes_on_where_it_stood():
    # Four at once, two wanted: 1 and 2 end at 2 and 3; the others have made 3 tokens by then.
    world, told, groups = play(
        Schedule(OverSample(2.0), Stop(abort=True)), [9, 2, 3, 5, 1, 1], batch=2, updates=2, slots=2, per_sequence=0.0
    )
    assert numbers(groups)[:2] == [1, 2]
    # Then 0 and 3 come first with 6 and 2 tokens to go, and 4 and 5 need one each.
    assert world.now == pytest.approx(4)
    assert numbers(groups) == [1, 2, 4, 5]
    assert told.tokens["carried"] == 3 + 1 + 3 + 1
    assert told.tokens["wasted"] == 0


def test_discarding_throws_the_same_tokens_away():
    _, told, groups = play(
        Schedule(OverSample(2.0), Stop(abort=True), Resume("drop")), [9, 2, 3, 5], batch=2, updates=1, slots=2,
        per_sequence=0.0,
    )  # fmt: skip
    assert numbers(groups, "dropped: resume") == [0, 3]
    assert told.tokens["wasted"] == 3 + 3


def test_beyond_the_knee_over_sampling_is_not_free():
    free, _, _ = play(Schedule(), [6] * 4, batch=4, updates=1, slots=2, per_sequence=0.0)
    dear, _, _ = play(Schedule(), [6] * 4, batch=4, updates=1, slots=2, per_sequence=1.0)
    assert (free.now, dear.now) == (pytest.approx(6), pytest.approx(12))


def interrupted(tokens, turns):
    world = ClockWorld(
        Hardware(2, slots=1, plateau=1.0, per_sequence=1.0, prefill=0.0, train=0.0, sync=1.0, colocated=False)
    )
    items = [
        WorkItem((Job((3,)),), 0.0),
        WorkItem((Job(turns, (0.0,) * (len(turns) - 1)),), 0.0),
        *[WorkItem((Job((50,)),), 0.0)] * 2,
    ]
    groups = []
    scheduler = Scheduler(Schedule(Ahead(1), resume=Resume(tokens)), 1)
    world.drive(scheduler, Prompts(lambda k: Offer(items[k], (1,)), settled=groups.append), 2)
    return world, scheduler, groups


@pytest.mark.parametrize(
    ("tokens", "end", "segments"),
    [
        ("keep", 3 + 1 + 7 + 1, [(0, 3), (1, 7)]),
        ("turn", 3 + 1 + 8 + 1, [(0, 2), (1, 8)]),
        ("restart", 3 + 1 + 10 + 1, [(1, 10)]),
    ],
)
def test_an_update_interrupts_and_what_was_made_stays_as_the_rule_says(tokens, end, segments):
    world, told, groups = interrupted(tokens, (2, 8))
    assert numbers(groups)[:2] == [0, 1]
    assert world.now == pytest.approx(end)
    assert (told.tokens["wasted"] == 0) == (tokens == "keep")
    made = {}
    for version, n in groups[1].members[0].segments:
        made[version] = made.get(version, 0) + n
    assert list(made.items()) == segments


def test_a_rollout_that_runs_on_through_a_reload_is_split_by_version():
    world, _, groups = play(
        Schedule(TopUp(2.0), resume=Resume(update="run on")),
        [3, 8, 20, 20],
        batch=1,
        updates=2,
        colocated=False,
        sync=1.0,
    )
    second = next(g for g in groups if g.number == 1)
    assert [(s.version, s.tokens) for s in second.members[0].segments] == [(0, 4), (1, 4)]
    # Engine 0 reloads from 3 to 4, engine 1 from 4 to 5: eight tokens end at 9; then two waves more.
    assert world.now == pytest.approx(9 + 2)


def test_constant_lengths_give_over_sampling_nothing():
    work = Workload(Constant(100))
    hardware = Hardware(2, slots=16, plateau=0.0, per_sequence=0.01, train=0.0, sync=0.0)
    from studies.clock.measure import run

    sync = run(Schedule(), hardware, work, updates=6, per_engine=2)
    april = run(Schedule(OverSample(2.0), Stop(abort=True)), hardware, work, updates=6, per_engine=2)
    assert april.tokens_per_second <= sync.tokens_per_second * 1.01
    tailed = Workload(LogNormal(100, 1.2), cap=5000)
    hardware = Hardware(2, slots=64, plateau=0.02, per_sequence=0.0, train=0.0, sync=0.0)
    sync = run(Schedule(), hardware, tailed, updates=12, per_engine=2)
    april = run(Schedule(OverSample(2.0), Stop(abort=True)), hardware, tailed, updates=12, per_engine=2)
    assert april.tokens_per_second > 1.2 * sync.tokens_per_second


def test_a_source_that_runs_dry_is_told_and_not_waited_for():
    with pytest.raises(ClockError, match="nothing is under way"):
        play(Schedule(), [2, 2], batch=4, updates=1)


def test_training_where_rollouts_still_run_is_refused():
    with pytest.raises(ClockError, match="colocated=False"):
        play(Schedule(Ahead(1)), [2, 9, 9, 9], batch=1, updates=1)
