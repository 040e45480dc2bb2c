"""SCALER: levels follow the policy's skill, instances come to order, environments make room and keep their level."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.order import ControlError
from rolltree.control.plan import Step
from rolltree.task.items import ENVIRONMENT
from rolltree.task.protocol import Item
from rolltree_papers.scaler import Environment, Scaler, ScalerState, finished, kind_of, made_to_order
from rolltree_papers.scaler.study import LEVELS, Ladders, informative
from studies.prompts.world import run


def placed(level: float, levels: list[int] | None = None) -> Environment:
    return Environment(levels or list(range(101)), level)


@pytest.mark.parametrize(("gain", "low", "high"), [(0.5, 0.6, 0.7), (2.0, 0.5, 0.56)])
def test_a_gain_of_two_holds_one_half_while_skill_grows_and_a_small_one_lags(gain, low, high) -> None:
    env, rates = placed(0.0), []
    for step in range(200):
        rate = 1 / (1 + np.exp(-(0.03 * step - env.level / 2)))
        env.move(rate, gain, 0.5, 1.0)
        rates.append(rate)
    assert low < np.mean(rates[50:]) < high


def test_a_visit_asks_for_both_levels_around_and_is_as_hard_on_average_as_it_stands() -> None:
    rng, drawn = np.random.default_rng(0), Counter()
    for _ in range(400):
        split = placed(3.3).split(4, rng)
        assert sum(split.values()) == 4
        drawn.update(split)
    assert set(drawn) == {3, 4}
    assert sum(level * n for level, n in drawn.items()) / 1600 == pytest.approx(3.3, abs=0.03)
    assert placed(5.0).split(4, rng) == {5: 4}
    assert set(placed(4.0, [2, 6]).split(4, rng).items()) == {(2, 2), (6, 2)}, "levels may have gaps"


def test_accuracy_lies_between_those_of_the_levels_beside_it() -> None:
    env = placed(3.25)
    assert env.accuracy({3: 0.8, 4: 0.4}) == pytest.approx(0.7)
    assert env.accuracy({4: 0.4}) == pytest.approx(0.4), "one level alone speaks for both"
    assert placed(4.0, [2, 6]).accuracy({2: 1.0, 6: 0.0}) == pytest.approx(0.5)


def test_levels_stay_inside_what_there_is_and_a_step_inside_its_bound() -> None:
    env = placed(0.5, [0, 1, 2])
    env.move(1.0, 50.0, 0.5, 1.0)
    assert env.level == 1.5
    env.move(1.0, 50.0, 0.5, 1.0)
    assert env.level == 2.0
    env.forget(2)
    assert (env.level, env.levels) == (1.0, [0, 1])
    fresh = Environment()
    for level in (3, 1, 2):
        fresh.know(level)
    assert (fresh.level, fresh.levels) == (1.0, [1, 2, 3]), "it begins at its lowest"


def test_when_an_environment_makes_room() -> None:
    def after(rates: list[float], steps: list[float], slope: float | None = 0.0) -> str:
        return finished(Environment([0, 1, 2], steps[-1], len(rates), rates, steps), 5, 10, slope)

    assert "nothing solved" in after([0.0] * 5, [0.0] * 5)
    assert after([0.0] * 4 + [0.1], [0.0] * 5) == ""
    assert "highest level" in after([0.9] * 5, [2.0] * 5)
    resting = [0.5] * 10, [1.0] * 10
    assert "no longer rises" in after(*resting)
    assert after(*resting, slope=None) == "", "a plateau of skill may be stayed on"
    assert after([0.5] * 10, list(np.linspace(0.5, 1.5, 10))) == ""
    assert after([0.5] * 9, [1.0] * 9) == "", "progress is not judged before the window is full"


def test_environments_come_and_go_and_keep_their_level() -> None:
    """Skills that stand still: whoever has found its level makes room."""
    control, world = Scaler(active=3), Ladders(seed=1, gain=0.0)
    state, history = control.start(), History()
    seen: set[str] = set()
    left: dict[str, float] = {}
    for number in range(1, 61):
        (log,) = run(control, world, 1, prompts=12, state=state, history=history, first=number)
        visited = {d.order.prompt.item.meta[ENVIRONMENT] for d in log.delivered}
        gone = visited - set(state.active)
        assert len(visited) == 3
        assert len(state.active) + len(gone) == 3
        assert all(state.known[name].rates == [] for name in gone)
        assert all(state.known[name].level == level for name, level in left.items() if name not in visited)
        seen |= visited
        left |= {name: state.known[name].level for name in gone}
    assert len(left) >= 3
    assert len(seen) > 3


def test_by_default_somebody_waits_so_that_retirement_can_happen() -> None:
    """Seven environments of 64 places were all active, and none ever made room for another."""
    control, world = Scaler(), Ladders(seed=1, gain=0.0)
    state = control.start()
    run(control, world, 40, prompts=12, state=state, history=History())
    assert len(state.known) == 8
    assert len(state.active) <= 4
    assert state.retired > 0


def test_following_the_skill_beats_even_levels_and_trains_faster() -> None:
    ours, even = informative(Scaler(), 0), informative(Scaler(gain=1e-9), 0)
    assert ours[0] > even[0]
    assert ours[1] > even[1], "standing at the easiest level teaches less"


@dataclass
class Changing:
    """Items of given levels, in turn."""

    levels: list[int]
    taken: int = 0
    seen: list[int] = field(default_factory=list)

    def take(self, count: int) -> list[Item]:
        self.taken += count
        return self.at(range(self.taken - count, self.taken))

    def at(self, places) -> list[Item]:
        return [Item(f"i{p}", "?", 1, self.levels[p % len(self.levels)]) for p in places]


def step(supply: Changing, prompts: int = 4) -> Step:
    return Step(1, prompts, 2, np.random.default_rng(0), supply, History())


def test_a_level_that_no_longer_comes_is_forgotten_and_its_places_are_filled() -> None:
    supply, state = Changing([1, 2, 3]), ScalerState()
    state.see(supply.at(range(3)))
    assert [kind_of(i) for i in made_to_order(step(supply), state, Counter({("", 3): 4}))] == [("", 3)] * 4
    supply.levels = [1, 2]
    items = made_to_order(step(supply), state, Counter({("", 3): 3, ("", 1): 1}))
    assert len(items) == 4
    assert state.known[""].levels == [1, 2]
    supply.levels = [7]
    made_to_order(step(supply), state, Counter({("", 1): 2}))
    assert state.known[""].levels == [2, 7], "new levels are known from then on"


def test_knobs_that_make_no_sense_are_refused() -> None:
    for knobs, said in (({"active": -1}, "active=-1"), ({"window": 1}, "window=1"), ({"target": 1.0}, "target=1"),
                        ({"gain": 0.0}, "gain=0")):  # fmt: skip
        with pytest.raises(ControlError, match=said):
            Scaler(**knobs)


def test_the_world_of_levels_raises_an_environments_whole_ladder() -> None:
    world = Ladders(seed=0)
    run(Scaler(active=1), world, 5, prompts=8)
    moved = world.skills - Ladders(seed=0).skills
    assert (moved > 0).sum() >= 1
    ladder = world.logits.reshape(-1, LEVELS)
    assert np.allclose(np.diff(ladder, axis=1), -0.5)
