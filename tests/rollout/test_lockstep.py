"""Lock-step: a batch is what one plan delivered, and plans may run ahead of the weights by so many versions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Control, Nothing, Plan, Step
from rolltree.control.schedule import Ahead, Schedule, StalenessBound, Stop, TopUp, preset
from rolltree.filter.groups import GroupFilter, Mixed
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.replay.buffer import RolloutBatch
from rolltree.rollout.collector import Collector
from rolltree.rollout.config import ControlState, RolloutConfig
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.executor import RolloutExecutor
from rolltree.rollout.scheduled import fitted, schedule_of
from rolltree.task.protocol import Task
from rolltree.testing.faulty import Flaky
from rolltree.testing.tiny import SpellTask
from rolltree.tree import Tree
from rolltree.tree.forest import assert_conserved
from tests.rollout.flying import tabular, weights

PROMPTS, GROUP = 3, 4


def parts(*filters: GroupFilter, rounds: int = 1, control: Control | None = None) -> Parts:
    made = replace(load_recipe("grpo", group=GROUP).build(), filters=filters, rounds=rounds)
    return made if control is None else replace(made, control=control)


def collector(recipe: Parts, engine: Any, task: Task, staleness: int = 0) -> Collector:
    schedule, unit, _ = fitted(schedule_of(recipe, staleness=staleness), recipe)
    return Collector(RolloutExecutor(
        recipe, engine, task, RolloutConfig(PROMPTS, seed=1), schedule, unit, ControlState(recipe.control),
        Cursor(task, 1),
    ))  # fmt: skip


def batches(recipe: Parts, steps: int, staleness: int = 0, task: Task | None = None, folder: Path | None = None,
            engine: Any = None) -> list[RolloutBatch]:  # fmt: skip
    """So many steps, each under weights of its own; with a folder, written down and read back after each."""
    made, asked = engine or tabular(), task or SpellTask()

    async def run() -> list[RolloutBatch]:
        mine, out = collector(recipe, made, asked, staleness), list[RolloutBatch]()
        for step in range(steps):
            out.append(await mine.collect(step))
            await mine.trained(0.0)
            await made.update_weights(weights(step + 1), step + 1)
            if folder is not None:
                await mine.rest()
                mine.save(folder / str(step))
                mine = collector(recipe, made, asked, staleness)
                mine.load(folder / str(step), step + 1)
        await mine.close()
        return out

    return asyncio.run(run())


def written(trees: list[Tree]) -> list[Any]:
    return [(t.id, [(n.actions.tolist(), n.usage, n.scores.get("reward")) for n in t]) for t in trees]


@settings(max_examples=8, deadline=None)
@given(staleness=st.integers(0, 4), steps=st.integers(1, 7))
def test_the_rule_bounds_the_staleness_and_reaches_it(staleness: int, steps: int) -> None:
    for step, batch in enumerate(batches(parts(), steps, staleness)):
        written_under = {int(v) for t in batch.kept for n in t if n.version is not None for v in n.version}
        assert written_under == {max(0, step - staleness)}
        assert len(batch.fresh) == PROMPTS * (1 + staleness if step == 0 else 1)


def test_a_step_samples_others_in_place_of_what_filters_drop_and_drops_what_is_too_many() -> None:
    seen: list[int] = []
    for batch in batches(parts(Mixed(), rounds=4), 6):
        assert len(batch.kept) <= PROMPTS
        reasons = [tree.leaves()[0].usage for tree in batch.dropped]
        assert all(r == "dropped: the step had enough prompts" or "all outcomes are" in r for r in reasons)
        assert reasons == sorted(reasons, key=lambda r: "enough" in r), "refused groups stand first"
        assert 1 <= batch.numbers["rollout/rounds"] <= 4
        assert (batch.numbers["rollout/rounds"] > 1) == (sum("all outcomes" in r for r in reasons) > 0)
        assert_conserved([*batch.dropped])
        seen.append(len(batch.trees))
    assert max(seen) > PROMPTS


def test_a_step_whose_groups_are_all_dropped_is_an_empty_batch() -> None:
    for batch in batches(parts(lambda tree: "all alike", rounds=3), 3):
        assert not batch.kept
        assert batch.numbers["rollout/rounds"] == 3
        assert {leaf.usage for tree in batch.dropped for leaf in tree.leaves()} == {"dropped: all alike"}


class Silent:
    """Asks in every second step only."""

    needs = frozenset[str]()

    def start(self) -> Nothing:
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        yield [Order(p, last=True) for p in (step.take() if step.number % 2 else [])]


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_plan_that_asks_for_nothing_is_an_empty_batch(staleness: int) -> None:
    done = batches(parts(control=Silent()), 5, staleness)
    assert [len(batch.kept) for batch in done] == [PROMPTS, 0, PROMPTS, 0, PROMPTS]


def test_failed_rollouts_stay_in_their_group_without_an_outcome() -> None:
    task = Flaky(SpellTask(), "verify")  # type: ignore[arg-type]
    done = batches(parts(), 3, task=task)
    leaves = [leaf for batch in done for tree in batch.kept for leaf in tree.leaves()]
    assert len(leaves) == 3 * PROMPTS * GROUP, "none was made again"
    failed = [leaf for leaf in leaves if leaf.status == "failed"]
    assert failed
    assert not any("reward" in leaf.scores for leaf in failed)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_restart_changes_nothing_that_comes_later(staleness: int, tmp_path: Path) -> None:
    """What waits comes back with what was dropped beside it, and the control with what it has learned."""
    recipe = parts(Mixed(), rounds=3)
    whole, again = batches(recipe, 5, staleness), batches(recipe, 5, staleness, folder=tmp_path)
    for one, other in zip(whole, again, strict=True):
        assert written(one.kept) == written(other.kept)
        assert written(one.dropped) == written(other.dropped)
        assert written(one.fresh) == written(other.fresh)
        assert one.numbers == other.numbers


def test_what_trains_whole_plans_takes_no_other_rule() -> None:
    assert schedule_of(parts(), staleness=2) == replace(preset("sync"), admission=Ahead(2))
    for admission, stop, age in (
        (TopUp(1.0), Stop(batch="plan"), StalenessBound()),
        (Ahead(), Stop("finished", batch="plan"), StalenessBound()),
        (Ahead(), Stop(abort=True, batch="plan"), StalenessBound()),
        (Ahead(1), Stop(batch="plan"), StalenessBound(1, late="wait")),
    ):
        with pytest.raises(ControlError, match="trains whole plans in their order"):
            Schedule(admission, stop, age=age)
