"""Numbers of a schedule: a rule that discards what is late shows in the share of slow groups that get in."""

from __future__ import annotations

from rolltree.control.schedule import OverSample, Schedule, StalenessBound, Stop, preset
from rolltree.control.schedule.rollout import Group, Rollout, Segment
from rolltree.rollout.underway import Underway
from tests.rollout.flying import BATCH, fly, tabular


def group(number: int, tokens: int, usage: str) -> Group:
    made = Group(number, None, [1], 0, 0.0, usage=usage)
    made.members.append(Rollout(number, made, 0, segments=[Segment(0, tokens)], usage=usage))
    return made


def test_shares_of_slow_and_other_groups() -> None:
    seen = Underway(4)
    for i in range(6):
        seen.settled(group(i, 10 + i, "trained"))
    for i in range(2):
        seen.settled(group(6 + i, 90, "dropped: age"))
    scheduler = fly(preset("sync"), updates=1).executor.scheduler
    told = seen.numbers(scheduler, [])
    assert told["rollout/slow_trained"] == 0
    assert told["rollout/other_trained"] == 1


def test_discarding_starves_what_is_slow_and_carrying_does_not() -> None:
    """The same work under both rules, by the lengths of what was trained."""
    length: dict[str, float] = {}
    for name, age in (("carry", StalenessBound()), ("discard", StalenessBound(0))):
        flown = fly(Schedule(OverSample(3.0), Stop(abort=True), age=age), engine=tabular(shuffle=5), updates=8)
        trained = [max(r.tokens for r in g.members) for batch in flown.trained for g in batch]
        assert len(trained) == 8 * BATCH
        length[name] = sum(trained) / len(trained)
    assert length["carry"] > length["discard"]
