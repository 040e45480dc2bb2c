"""Pools of two kinds, verifiers and updates behind the scenes, small enough for paper where that is possible."""

import pytest

from rolltree.control.schedule import Ahead, Offer, Schedule
from rolltree.control.schedule.scheduler import Scheduler
from studies.clock.hardware import Hardware
from studies.clock.rollart import KEEPING, READS, WRITES, AgentWork, mixed, paced
from studies.clock.work import Job, WorkItem
from studies.clock.world import ClockWorld, Prompts

BASE = {"slots": 1, "plateau": 1.0, "per_sequence": 0.0, "prefill": 0.0, "train": 0.0, "sync": 0.0, "colocated": False}


def play(jobs, hardware, fleet=None, updates=1, batch=None, schedule=None):
    world = ClockWorld(hardware, fleet or {})
    offers = [Offer(WorkItem((job,), 0.0), (1,)) for job in jobs]
    scheduler = Scheduler(schedule or Schedule(), batch or len(jobs))
    world.drive(scheduler, Prompts(lambda k: offers[k] if k < len(offers) else None), updates)
    return world


def test_work_waits_for_its_own_pool_though_another_is_idle():
    fleet = {"a": Hardware(1, **BASE), "b": Hardware(1, **BASE)}
    tagged = play([Job((3,), pool="a"), Job((3,), pool="a")], Hardware(2, **BASE), fleet)
    assert tagged.now == pytest.approx(6)
    assert play([Job((3,)), Job((3,))], Hardware(2, **BASE), fleet).now == pytest.approx(3)


def test_what_an_environment_says_is_read_before_the_next_turn():
    job = Job((2, 2), (1.0,), reads=(40,))
    hardware = Hardware(1, **{**BASE, "prefill": 0.1}, prompt=10)
    # Prompt 1 s, two steps, a wait of 1 s, 40 tokens in 4 s, two steps.
    assert play([job], hardware).now == pytest.approx(1 + 2 + 1 + 4 + 2)


def test_verifiers_are_as_many_as_there_are_or_as_are_asked_for():
    jobs = [Job((1,), verify=5.0) for _ in range(4)]
    one, called = (play(jobs, Hardware(4, **BASE, verifiers=n)) for n in (1, 0))
    assert (one.now, called.now) == (pytest.approx(1 + 4 * 5), pytest.approx(1 + 5))
    assert one.verifying == called.verifying == 20


def test_a_hidden_transfer_does_not_hold_up_what_decodes():
    jobs = [Job((10,)) for _ in range(6)]
    shown, behind = (
        play(jobs, Hardware(1, **{**BASE, "sync": 4.0}, hidden=share), updates=3, batch=1, schedule=Schedule(Ahead(1)))
        for share in (0.0, 1.0)
    )
    assert behind.now < shown.now


def test_affinity_uses_each_kind_for_what_it_is_good_at():
    base, fleet = Hardware(4, colocated=False), mixed(4)
    rates = {r: paced(KEEPING, base, AgentWork(0, route=r), fleet, updates=6).rate for r in ("affinity", "against")}
    assert rates["affinity"] > 1.1 * rates["against"]
    writes, reads = (AgentWork(0).item(k, 2).jobs[0] for k in (0, 1))
    assert (writes.pool, reads.pool) == (WRITES, READS)
    assert sum(reads.reads) > sum(writes.reads) == 0
