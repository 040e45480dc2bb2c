"""Any schedule on a real engine: nothing is lost, bounds hold, and every token is its own version's."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step, Uniform
from rolltree.control.schedule import (
    PRESETS,
    Ahead,
    Bounded,
    OverSample,
    Resume,
    Schedule,
    StalenessBound,
    Stop,
    TopUp,
    preset,
)
from rolltree.engine.tabular import TabularEngine
from rolltree.filter.groups import Mixed
from rolltree.recipe.treepo import SegmentTree
from rolltree.rollout.config import RolloutError
from rolltree.testing.faulty import Flaky
from rolltree.testing.tiny import SpellTask, Walk
from rolltree.tree.forest import assert_conserved
from tests.rollout.flying import BATCH, Flown, fly, moved, new_run, step, tabular, weights

schedules = st.builds(
    Schedule,
    st.one_of(
        st.builds(Ahead, st.integers(0, 3)),
        st.builds(OverSample, st.floats(1, 3)),
        st.builds(Bounded, st.floats(0, 2), st.floats(1, 3)),
        st.builds(TopUp, st.floats(1, 3)),
    ),
    st.builds(
        Stop, st.sampled_from(("created", "finished")), st.sampled_from((None, 1.0, 1.5)), st.booleans(),
        st.integers(0, 2),
    ),
    st.builds(
        Resume, st.sampled_from(("keep", "mask", "turn", "restart")), st.sampled_from(("interrupt", "wait", "run on"))
    ),
    st.builds(StalenessBound, st.one_of(st.none(), st.integers(2, 4)), st.just("drop"), st.booleans()),
)  # fmt: skip
APRIL = preset("april")


def check(flown: Flown) -> None:
    """Every rollout has one usage, every token one place, and what is trained was sampled as it says."""
    told, groups = flown.executor.scheduler, flown.groups
    rollouts = [r for g in groups for r in g.members]
    assert len({g.number for g in groups}) == len(groups), "a group was settled twice"
    assert sorted(r.id for r in rollouts) == list(range(told.numbers["submitted"]))
    assert Counter(r.usage for r in rollouts) == Counter({k: n for k, n in told.numbers.items() if k != "submitted"})
    assert not flown.executor.tasks
    flown.executor.budget.check()
    assert_conserved([g.item.tree for g in groups])
    for group in groups:
        if group.usage != "trained":
            continue
        tree = group.item.tree
        leaves = [leaf for leaf in tree.leaves() if leaf.status == "done" and not leaf.usage.startswith("dropped")]
        assert len(leaves) == group.size, "as many leaves teach as rollouts were kept"
        assert all("reward" in leaf.scores for leaf in leaves)
        written = [[n for n in tree.path(leaf) if n.trainable] for leaf in leaves]
        masked = [sum(int((~n.keep).sum()) for n in path if n.keep is not None) for path in written]
        there = zip((sum(len(n) for n in path) for path in written), masked, strict=True)
        assert sorted(there) == sorted((r.tokens, r.masked) for r in group.kept)
        for node in tree:
            if node.trainable and len(node):
                assert node.logp is not None
                assert node.version is not None
                assert node.logp == pytest.approx(scored(tree, node), abs=1e-5), "log-probs are of their own version"


def scored(tree, node) -> np.ndarray:
    before = tuple(int(t) for t in tree.prefix(node)[: -len(node)])
    ids = [int(t) for t in node.actions]
    rows = [weights(int(v))(before + tuple(ids[:i])) for i, v in enumerate(node.version)]
    return np.log([row[t] for row, t in zip(rows, ids, strict=True)])


@settings(max_examples=15, deadline=None)
@given(schedules, st.sampled_from((SpellTask(), Walk())), st.integers(0, 2**16), st.integers(0, 12))
def test_nothing_is_lost_under_any_schedule(schedule: Schedule, task: SpellTask | Walk, seed: int, ticks: int) -> None:
    flown = fly(schedule, task=task, engine=tabular(shuffle=seed), ticks=ticks, seed=seed)
    check(flown)
    assert [len(batch) for batch in flown.trained] == [BATCH] * 5
    assert sum(flown.executor.scheduler.tokens.values()) == flown.executor.budget.spent.decoded
    if schedule.age.most is not None:
        assert max(g.staleness for g in flown.groups) <= schedule.age.most


@settings(max_examples=8, deadline=None)
@given(schedules, st.sampled_from(("engine", "step", "verify")), st.integers(0, 2**16))
def test_failures_are_replaced_and_counted(schedule: Schedule, part: str, seed: int) -> None:
    task = Flaky(Walk(), part)  # type: ignore[arg-type]
    engine = task.engine(tabular(shuffle=seed)) if part == "engine" else tabular(shuffle=seed)
    flown = fly(schedule, task=task, engine=engine, updates=4, seed=seed)
    check(flown)
    assert task.raised


@pytest.mark.papers("april")
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("task", [SpellTask(), Walk()], ids=["one turn", "turns"])
def test_presets_keep_their_word(name: str, task: SpellTask | Walk) -> None:
    flown = fly(preset(name), task=task, engine=tabular(shuffle=1), updates=6)
    check(flown)
    most = preset(name).age.most
    assert most is None or max(g.staleness for g in flown.groups) <= most
    if name == "sync":
        assert max(g.staleness for g in flown.groups) == 0
    if name == "april":
        partial = [r for g in flown.groups if g.usage == "trained" for r in g.kept if r.stops]
        assert partial, "rollouts that were stopped are trained in the end"
        assert any(len(r.segments) > 1 for r in partial), "with the tokens they had, under their versions"


@pytest.mark.papers("april")
def test_filtered_groups_make_room_and_say_why() -> None:
    flown = fly(APRIL, filters=(Mixed(),), engine=tabular(shuffle=3))
    check(flown)
    dropped = [leaf.usage for tree in flown.dropped for leaf in tree.leaves()]
    assert dropped
    assert all(usage.startswith("dropped: all outcomes are") for usage in dropped)


def test_old_partials_are_dropped_by_the_age_rule() -> None:
    flown = fly(
        Schedule(OverSample(3.0), Stop(abort=True), age=StalenessBound(0)), engine=tabular(shuffle=2), updates=4
    )
    check(flown)
    assert flown.executor.scheduler.numbers["dropped: age"]
    assert {leaf.usage for tree in flown.dropped for leaf in tree.leaves()} == {"dropped: age"}
    assert max(g.staleness for g in flown.groups) == 0


@pytest.mark.papers("april", "dart")
@pytest.mark.parametrize("name", ["areal", "april", "verl", "dart"])
def test_a_tree_that_cannot_be_cut_finishes(name: str) -> None:
    flown = fly(preset(name), strategy=SegmentTree(4, 3), engine=tabular(shuffle=1), updates=4, ticks=2)
    trees = [g.item.tree for batch in flown.trained for g in batch]
    assert len(trees) == 4 * BATCH
    assert all(leaf.ended for tree in trees for leaf in tree.leaves())
    assert flown.executor.scheduler.numbers["trained"] == 4 * BATCH
    assert not any(r.stops for g in flown.groups for r in g.members)
    if name == "dart":
        assert any(len({int(v) for n in tree if n.version is not None for v in n.version}) > 1 for tree in trees)


@settings(max_examples=6, deadline=None)
@given(schedules, st.sampled_from((SpellTask(), Walk())), st.integers(0, 2**16))
def test_all_of_it_survives_a_restart(schedule: Schedule, task: SpellTask | Walk, seed: int) -> None:
    engine = tabular(shuffle=seed)

    async def run() -> Flown:
        flown = new_run(schedule, task, engine, seed=seed)
        with TemporaryDirectory() as folder:
            for version in range(1, 4):
                await step(flown, engine, version)
                before = flown.executor.scheduler.state_dict
                again = await moved(flown, Path(folder) / str(version), schedule, task, engine, seed=seed)
                assert again.executor.scheduler.state_dict() == before()
                flown = again
        await flown.executor.close()
        return flown

    flown = asyncio.run(run())
    check(flown)
    assert [len(batch) for batch in flown.trained] == [BATCH] * 3


@pytest.mark.papers("dart")
def test_trees_that_cannot_be_cut_begin_again_after_a_restart(tmp_path: Path) -> None:
    engine, strategy = tabular(shuffle=1), SegmentTree(4, 3)

    async def run() -> Flown:
        flown = new_run(preset("dart"), SpellTask(), engine, strategy=strategy)
        for version in range(1, 4):
            await step(flown, engine, version)
        assert flown.executor.scheduler.running
        again = await moved(flown, tmp_path / "parked", preset("dart"), SpellTask(), engine, strategy=strategy)
        for task in flown.executor.tasks.values():
            task.cancel()
        for version in range(4, 6):
            await step(again, engine, version)
        await again.executor.close()
        return again

    flown = asyncio.run(run())
    assert [len(batch) for batch in flown.trained] == [BATCH] * 5
    assert len({g.number for g in flown.groups}) == len(flown.groups)


@pytest.mark.papers("april")
@pytest.mark.parametrize("name", ["verl", "april", "areal"])
def test_a_filter_that_keeps_nothing_is_told_and_ends_the_run_with_a_sentence(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = r"192 groups in a row were dropped .*all alike\); choose prompts"
    with caplog.at_level(logging.WARNING, "rolltree"), pytest.raises(RolloutError, match=said):
        fly(preset(name), filters=(lambda tree: "all alike",))
    assert [said.partition(" groups in a row were dropped")[0] for said in caplog.messages] == ["12", "24", "48", "96"]
    assert all(said.endswith("none is left to train; the run ends after 192.") for said in caplog.messages)


@dataclass(frozen=True)
class Measures(Uniform):
    """A control that asks for rollouts to measure and for none to train on, or for nothing at all."""

    nothing: bool = False

    def plan(self, step: Step, state: Nothing) -> Plan:
        yield [] if self.nothing else [Order(prompt, for_training=False, last=True) for prompt in step.take()]


@pytest.mark.papers("april")
@pytest.mark.parametrize("nothing", [False, True])
@pytest.mark.parametrize("name", ["verl", "april", "areal"])
def test_a_control_that_never_orders_anything_to_train_on_ends_the_run_with_a_sentence(
    name: str, nothing: bool
) -> None:
    with pytest.raises(ControlError, match="the control Measures ordered nothing to train on in 32 steps; choose"):
        fly(preset(name), control=Measures(nothing))


def test_a_dead_engine_ends_the_run_with_a_sentence() -> None:
    class Shut(TabularEngine):
        def submit(self, request):  # pyright: ignore
            raise ConnectionError("nobody answers")

    for strategy in (None, SegmentTree(4, 3)):
        with pytest.raises(RolloutError, match=r"groups in a row failed.*nobody answers"):
            fly(preset("areal"), engine=Shut(weights(0), tabular().codec), strategy=strategy)
