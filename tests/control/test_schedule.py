"""The five choices by themselves."""

import pytest

from rolltree.control.order import ControlError
from rolltree.control.schedule import (
    PRESETS,
    Ahead,
    Bounded,
    Load,
    OverSample,
    Resume,
    Schedule,
    ScheduleCorrection,
    StalenessBound,
    Stop,
    TopUp,
    preset,
)  # fmt: skip
from rolltree.errors import UnknownNameError
from rolltree.objective.correction import ImportanceWeight
from rolltree.objective.registry import load_objective


def load(version=0, running=0, ready=0, started=0, training=False):
    return Load(10, version, running, ready, started, training)


@pytest.mark.parametrize(
    ("rule", "state", "room"),
    [
        (Ahead(0), load(), 10),
        (Ahead(0), load(training=True), 0),
        (Ahead(0), load(version=1), 10),
        (Ahead(2), load(version=1, ready=5, running=20), 5),
        (Ahead(2), load(version=1, ready=5, running=10, training=True), 5),
        (Ahead(2, limit=1.5), load(running=8), 7),
        (OverSample(2.0), load(), 20),
        (OverSample(2.0), load(running=4, ready=6), 0),
        (OverSample(2.0), load(running=4, ready=5), 20),
        (OverSample(2.0), load(training=True), 0),
        (Bounded(0.5), load(started=9, running=9), 6),
        (Bounded(0.5), load(ready=15), 0),
        (Bounded(3.0, limit=1.0), load(running=9), 1),
        (TopUp(1.0), load(running=3, ready=9), 7),
        (TopUp(1.0), load(ready=10), 0),
    ],
)
def test_room(rule, state, room):
    assert max(rule.room(state), 0) == room


def test_waiting_is_refused_where_it_could_be_in_vain():
    with pytest.raises(ControlError, match="late='drop'"):
        Schedule(Ahead(3), age=StalenessBound(2, "wait"))
    with pytest.raises(ControlError, match="late='drop'"):
        Schedule(TopUp(), age=StalenessBound(2, "wait"))
    with pytest.raises(ControlError, match="created"):
        Schedule(Ahead(2), Stop("finished"), age=StalenessBound(2, "wait"))


def test_the_gate_looks_at_every_birth():
    gate = StalenessBound(2, "wait")
    # Version 2: of those born at 0 none may stay behind, of those born at 0 or 1 one batch.
    assert gate.holds({0: 1}, {}, version=2, batch=4)
    assert not gate.holds({0: 1, 1: 3}, {0: 1, 1: 3}, version=2, batch=4)
    assert gate.holds({0: 0, 1: 9}, {1: 4}, version=2, batch=4)
    assert not gate.holds({0: 0, 1: 8}, {1: 4}, version=2, batch=4)
    assert not StalenessBound(2, "drop").holds({0: 9}, {}, version=9, batch=1)
    assert StalenessBound(2, "drop").too_old(0, 3)
    assert not StalenessBound(2, "drop").too_old(1, 3)


@pytest.mark.parametrize(("rule", "kept"), [("keep", 9), ("mask", 9), ("turn", 6), ("restart", 0)])
def test_what_a_stopped_rollout_keeps(rule, kept):
    assert Resume(rule).kept(9, 3) == kept


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ahead(-1), lambda: Ahead(1, limit=0), lambda: OverSample(0.9), lambda: Bounded(-0.1),
        lambda: TopUp(0.5), lambda: Stop(window=0.5), lambda: Stop(spare=-1), lambda: StalenessBound(-1),
    ],
)  # fmt: skip
def test_senseless_knobs_are_refused(make):
    with pytest.raises(ControlError, match="give"):
        make()


@pytest.mark.papers("april", "dart")
def test_presets_are_found_by_name_and_the_nearest_is_offered():
    assert set(PRESETS) == {"sync", "areal", "april", "verl", "slime", "rollart", "dart"}
    with pytest.raises(UnknownNameError, match="areal"):
        preset("area")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_correction_can_be_built_by_the_objectives(name):
    correction = PRESETS[name].correction
    if correction.decoupled:
        assert load_objective("decoupled", **correction.knobs()).needs
    elif correction.knobs():
        assert ImportanceWeight(**correction.knobs()).high == correction.high
    else:
        assert correction == ScheduleCorrection()
