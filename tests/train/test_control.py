"""Every control over every generator; arms in one tree; exact resume; and no held-out answer anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.control.brief import Brief, Slot, brief
from rolltree.control.ledger import Budget, Limits
from rolltree.control.order import Order
from rolltree.control.plan import Control, Nothing, Plan, Step
from rolltree.control.registry import controls, load_control
from rolltree.control.schedule import preset
from rolltree.credit.advantage import Advantage
from rolltree.credit.fold import prompt_weighted
from rolltree.engine.tabular import TabularEngine
from rolltree.errors import RolltreeError
from rolltree.generate.forced import Demonstrations
from rolltree.generate.independent import Independent
from rolltree.recipe.check import check
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.replay.buffer import RolloutBatch
from rolltree.rollout.collector import Collector
from rolltree.rollout.config import ControlState, RolloutConfig, RolloutError
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.executor import RolloutExecutor
from rolltree.rollout.scheduled import fitted
from rolltree.rollout.widths import check_width, width_of
from rolltree.task.protocol import Item, Split, Task
from rolltree.testing.tiny import CODEC, SpellTask, Walk, tiny_engine
from rolltree.tree.forest import assert_conserved
from rolltree.tree.table import table
from tests.recipe.test_tree_recipes import SMALL
from tests.train.toy import KNOBS, Early, timeless, tiny_policy

SWARM = TemporaryDirectory()
TINY: dict[str, dict[str, Any]] = {
    "vade": {"pool": 8}, "shuffled": {"pool": 8}, "dots": {"pool": 8, "references": 3}, "hbpo": {
        "budgets": (2, 4), "template": "{budget}"}, "guide": {"template": "{hint}"}, "e1": {"template": "{effort}"},
    "v05": {"least": 2, "most": 4}, "seele": {"rounds": 2}, "dars": {"most": 10},
    "arrol": {"over": "recent", "tokens": 2, "warm": 1, "bins": 4, "passes": 2},
    "masa": {"template": "{prompt}", "efficient": True},
    "horizon": {"turns": 3}, "swarm": {"folder": SWARM.name},
    "tool_modes": {"use": "a", "avoid": "b", "forced": 1, "forbidden": 1, "free": 2},
    "arise": {"seeds": ("ab", "c"), "shown": "{skill}", "conclude": "{prompt}{traces}", "gate": 0.0},
    "cog_rethinker": {"decompose": "d", "reflect": "{wrong}", "example": "{prompt}"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told(SpellTask):
    """Spelling with a known answer; digits of templates are read as letters."""

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for item in SpellTask.items(self, split, seed):
            yield replace(item, meta={"solution": "abc!"})


def engine():
    return lenient(tiny_engine())


def lenient(made: TabularEngine) -> TabularEngine:
    """The engine reading what its alphabet lacks as "y"."""
    plain = made.codec.encode
    made.codec = _Lenient(CODEC.alphabet, CODEC.eos_id)
    assert plain("ab") == made.codec.encode("ab")
    return made


@dataclass(frozen=True)
class _Lenient(type(CODEC)):
    def encode(self, text: str) -> list[int]:
        return super().encode("".join(c if c in self.alphabet else "y" for c in text))


def gather(parts: Parts, task: Task, prompts: int = 3, *, seed: int = 0, control: ControlState | None = None,
           limits: Limits | None = None, steps: int = 1) -> tuple[list[RolloutBatch], Budget]:  # fmt: skip
    """Batches in lock-step, with nothing learned between them."""
    budget, schedule, unit = Budget(limits), *fitted(preset("sync"), parts)[:2]

    async def run() -> list[RolloutBatch]:
        collector = Collector(RolloutExecutor(
            parts, engine(), task, RolloutConfig(prompts, seed), schedule, unit, control or ControlState(parts.control),
            Cursor(task, 5), budget=budget,
        ))  # fmt: skip
        batches: list[RolloutBatch] = []
        for step in range(steps):
            batches.append(await collector.collect(step))
            assert await collector.trained(0.0) == {}
        await collector.close()
        return batches

    batches = asyncio.run(run())
    budget.check()
    return batches, budget


@pytest.mark.papers(
    "arise", "arrol", "cog_rethinker", "dars", "dots", "e1", "guide", "hbpo", "masa", "seele", "swarm", "v05", "vade"
)
@pytest.mark.parametrize("control", list(controls()))
@pytest.mark.parametrize("recipe", ["grpo", *SMALL])
def test_every_control_over_every_generator(recipe: str, control: str) -> None:
    steers = load_control(control, **TINY.get(control, {}))
    parts = replace(load_recipe(recipe, **SMALL.get(recipe, {"group": 4})).build(), control=steers, rounds=1)
    task = Walk() if "turns" in parts.strategy.needs else Told()
    if task.max_turns and steers.needs:
        with pytest.raises(RolltreeError, match="dialogues"):
            check(parts, engine(), task)
        return
    check(parts, engine(), task)
    if control == "masa" and isinstance(parts.strategy, Demonstrations):
        with pytest.raises(RolltreeError, match="nobody has written any"):
            check_width(parts.strategy, parts.control)
        return
    if width_of(parts.strategy) is None and control != "uniform":
        with pytest.raises(RolltreeError, match="decides by itself"):
            check_width(parts.strategy, parts.control)
        return
    check_width(parts.strategy, parts.control)
    state = ControlState(steers)
    batches, budget = gather(parts, task, seed=1, control=state, steps=2)
    spent = 0
    for batch in batches:
        found = assert_conserved(batch.trees, settled=True)
        assert found.leaves > 0
        decoded = sum(len(n) for t in batch.trees for n in t if n.trainable and not n.forced)
        spent += decoded
        assert sum(v for k, v in batch.numbers.items() if k.startswith("budget/tokens/")) == decoded
        for tree in batch.kept:
            assert tree.item.startswith("train-")
            assert "~" not in tree.item
            assert all(tree[c].parent == n.id for n in tree for c in n.children)
        if batch.kept:
            view = table(batch.kept)
            advantage = parts.credit(view) if recipe == "grpo" else None
            assert advantage is None or np.isfinite(advantage.leaf).all()
    assert spent <= budget.spent.decoded
    stored = ControlState(steers)
    stored.load_state_dict(state.state_dict())
    assert (stored.state, stored.history) == (state.state, state.history)


@pytest.mark.papers(
    "arise", "arrol", "cog_rethinker", "dars", "dots", "e1", "guide", "hbpo", "masa", "seele", "swarm", "v05", "vade"
)
@pytest.mark.parametrize("limits", [Limits(leaves=1), Limits(decoded=1), Limits(leaves=0), Limits(decoded=0)], ids=str)
@pytest.mark.parametrize("control", list(controls()))
def test_a_budget_smaller_than_one_rollout_ends_the_step_and_loses_nothing(control: str, limits: Limits) -> None:
    parts = replace(load_recipe("grpo", group=4).build(), control=load_control(control, **TINY.get(control, {})))
    (batch,), budget = gather(parts, Told(), limits=limits)
    assert_conserved(batch.trees, settled=True)
    # Documents that the policy only reads cost leaves, and nothing that is decoded.
    read = 6 if control == "arise" and limits.leaves is None else 0
    assert budget.spent.leaves <= 1 + read
    assert budget.spent.decoded <= 16


@dataclass(frozen=True)
class Twice:
    """Some rollouts plain, some more in an arm."""

    brief: Brief
    needs = frozenset()

    def start(self) -> Nothing:
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        prompts = step.take()
        yield [Order(p, 2) for p in prompts]
        yield [Order(p, 3, "aided", self.brief) for p in prompts]


def aided(shown: Brief) -> RolloutBatch:
    control: Control = Twice(shown)
    return gather(replace(load_recipe("grpo", group=4).build(), control=control), Told())[0][0]


def test_an_arm_shown_stands_below_a_hint_and_an_answers_beginning_is_verified() -> None:
    for tree in aided(brief("ab", joins=True)).kept:
        (hint,) = [n for n in tree if n.role == "hint"]
        assert CODEC.decode(hint.actions) == "ab"
        assert not hint.trainable
        assert len(hint.children) == 3
        assert len(tree.root.children) == 3
        for leaf in tree.leaves(hint):
            assert leaf.scores["reward"] == 1.0, "the verifier reads the beginning, which is right"
            assert leaf.notes["arm"] == "aided"


@pytest.mark.papers("seele")
def test_a_hint_that_teaches_carries_the_policys_log_prob() -> None:
    made = engine()
    for tree in aided(brief("ab", joins=True, trainable=True)).kept:
        (hint,) = [n for n in tree if n.role == "hint"]
        rows = [made.row(tuple(int(t) for t in tree.prefix(hint)[: len(tree.root) + i])) for i in range(2)]
        assert hint.logp == pytest.approx([row[t] for row, t in zip(rows, hint.actions, strict=True)], abs=1e-5)
        assert np.isnan(hint.sampling_logprob).all()
        assert hint.trainable
        view = table([tree])
        advantage = load_recipe("seele").build().credit(view)
        at = np.repeat([n.role == "hint" for n in view.nodes], view.length)
        assert np.all(advantage.action[at] == 0.001)
        assert np.all(advantage.factor[at] == 0)
        assert np.all(advantage.factor[~at] == 1)


@pytest.mark.parametrize("before", [False, True])
def test_a_hidden_arm_keeps_the_distribution_it_was_drawn_from_beside_the_bare_log_prob(before: bool) -> None:
    made = engine()
    for tree in aided(brief("xy", before=before, hidden=True)).kept:
        assert all(n.role in ("prompt", "policy") for n in tree)
        assert len(tree.root.children) == 5
        base, text = [int(t) for t in tree.root.actions], CODEC.encode("xy")
        differ = 0
        for leaf in tree.leaves():
            if leaf.notes.get("arm") != "aided":
                assert leaf.logp == pytest.approx(leaf.sampling_logprob, abs=1e-6)
                continue
            seen = text + base if before else base + text
            for context, logp in ((base, leaf.logp), (seen, leaf.sampling_logprob)):
                ids = [*context, *(int(t) for t in leaf.actions)]
                want = [made.row(tuple(ids[: len(context) + i]))[ids[len(context) + i]] for i in range(len(leaf))]
                assert logp == pytest.approx(want, abs=1e-5)
            differ += not np.allclose(leaf.logp, leaf.sampling_logprob)
        assert differ


def test_slots_of_one_brief_each_become_what_they_say() -> None:
    slots = (Slot("notes", "xy", before=True, hidden=True), Slot("plan", "de", ("t0/3",)),
             Slot("lead", "ab", joins=True, trainable=True))  # fmt: skip
    made = engine()
    for tree in aided(Brief(slots)).kept:
        plan, lead = (n for n in tree if n.role == "hint")
        assert [CODEC.decode(n.actions) for n in (plan, lead)] == ["de", "ab"], "what is hidden is left out"
        assert (plan.notes["slot"], plan.notes["sources"], lead.notes["slot"]) == ("plan", ["t0/3"], "lead")
        assert (plan.trainable, lead.trainable, lead.parent) == (False, True, plan.id)
        base = [int(t) for t in tree.prefix(lead)]
        at = len(base) - len(lead)
        assert lead.logp == pytest.approx([made.row(tuple(base[: at + i]))[base[at + i]] for i in range(2)], abs=1e-5)
        for leaf in tree.leaves(lead):
            assert leaf.scores["reward"] == 1.0, "the verifier reads the beginning alone"
            for context, logp in ((base, leaf.logp), (CODEC.encode("xy") + base, leaf.sampling_logprob)):
                ids = [*context, *(int(t) for t in leaf.actions)]
                want = [made.row(tuple(ids[: len(context) + i]))[ids[len(context) + i]] for i in range(len(leaf))]
                assert logp == pytest.approx(want, abs=1e-5)


def test_an_engine_that_cannot_score_a_hidden_arm_costs_failed_leaves_and_no_zeros(monkeypatch: Any) -> None:
    async def broken(*_: Any) -> Any:
        raise ConnectionError("gone")

    monkeypatch.setattr("rolltree.engine.tabular.TabularEngine.score", broken)
    for tree in aided(brief("xy", hidden=True)).trees:
        failed = [leaf for leaf in tree.leaves() if leaf.status == "failed"]
        assert len(failed) == 3
        assert all(leaf.notes["arm"] == "aided" for leaf in failed)
        assert any("gone" in e.why for e in tree.events if e.kind == "fail")


@pytest.mark.papers("xrpo")
def test_a_pooled_group_grew_as_if_it_had_been_one_and_its_events_point_at_its_nodes() -> None:
    control = load_control("xrpo", examples=0)
    (batch,), _ = gather(
        replace(load_recipe("treepo", leaves=6, segment=4).build(), control=control, filters=()), Told()
    )
    grown = [t for t in batch.kept if sum(e.kind == "allocate" for e in t.events) > 1]
    assert grown
    for tree in grown:
        assert {e.node for e in tree.events} - {None} <= set(tree.nodes)
        born = [c for e in tree.events for c in e.numbers.get("children", ())]
        assert set(born) <= set(tree.nodes)
        assert len(born) == len(set(born))


def test_prompt_weights_multiply_what_a_tree_teaches() -> None:
    (batch,), _ = gather(replace(load_recipe("grpo", group=4).build(), control=load_control("uniform")), Told())
    view = table(batch.kept)
    plain = Advantage(leaf=np.ones(len(view.leaf)), node=np.ones(len(view.nodes)))
    assert prompt_weighted(view, plain) is plain
    batch.kept[1].root.scores["prompt_weight"] = 2.5
    weighed = prompt_weighted(view, plain)
    assert weighed.leaf.tolist() == [2.5 if t == 1 else 1.0 for t in view.leaf_tree]
    assert weighed.node.tolist() == [2.5 if t == 1 else 1.0 for t in view.tree]


@pytest.mark.papers("dars", "ettrl")
def test_widths_of_strategies_and_of_those_that_do_not_say() -> None:
    assert width_of(Independent(5)) == 5
    assert width_of(load_recipe("ettrl", stems=3).build().strategy) == 3 * (1 + 2 * 2)

    class Mute:
        needs = frozenset()

        async def grow_tree(self, tree: Any, hand: Any) -> None: ...

    check_width(Mute(), load_control("uniform"))
    with pytest.raises(RolloutError, match=r"Mute decides by itself.*Dars cannot"):
        check_width(Mute(), load_control("dars"))


STATEFUL = {
    "vade": {"pool": 8}, "prompt-gdro": {}, "rollout-gdro": {}, "dots": {"pool": 8, "references": 3}, "v05": {},
    "arrol": {"tokens": 1, "warm": 1, "bins": 4}, "masa": {"template": "{prompt}", "efficient": True},
    "scaler": {},
}  # fmt: skip


@pytest.mark.papers("arrol", "dots", "masa", "scaler", "v05", "vade")
@pytest.mark.parametrize("control", list(STATEFUL))
def test_a_run_resumes_exactly_with_what_its_control_has_learned(control: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    parts = replace(load_recipe("grpo", group=4).build(), control=load_control(control, **STATEFUL[control]))
    knobs = {**KNOBS, "eval_every": 0, "forests_every": 0}
    whole = rolltree.train(parts, tiny_policy(), Early(), out=tmp_path / "whole", **knobs)
    rolltree.train(parts, tiny_policy(), Early(), out=tmp_path / "halves", **{**knobs, "steps": 2})
    halves = rolltree.train(parts, tiny_policy(), Early(), out=tmp_path / "halves", resume=True, **knobs)
    assert timeless(halves.metrics) == timeless(whole.metrics)


class Poison:
    """A held-out answer: whoever looks at it while training is caught."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def __bool__(self) -> bool:
        self._log.append("read")
        return True

    def __eq__(self, other: object) -> bool:
        self._log.append("read")
        return False

    def __hash__(self) -> int:
        self._log.append("read")
        return 0


@dataclass(frozen=True)
class Guarded(Early):
    """Held-out answers must be read by nobody (this verifier needs none); training ones come with a solution."""

    log: tuple[list[str], ...] = ()

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for item in super().items(split, seed):
            yield (replace(item, answer=Poison(self.log[0])) if split == "test" else item)


@pytest.mark.papers(
    "arise", "arrol", "cog_rethinker", "dars", "dots", "e1", "guide", "hbpo", "masa", "seele", "swarm", "v05", "vade"
)
@pytest.mark.parametrize("control", [name for name in controls() if name != "uniform"])
def test_no_control_sees_held_out_answers_or_learns_from_evaluation(control: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    guided = {"template": "A{hint}"} if control == "guide" else {}
    steers = load_control(control, **{**TINY.get(control, {}), **guided})
    parts = replace(load_recipe("grpo", group=2).build(), control=steers)
    states: list[Any] = []
    for every in (0, 1):
        log: list[str] = []
        knobs = {**KNOBS, "steps": 2, "prompts": 2, "forests_every": 0, "eval_every": every, "eval_items": 3}
        run = rolltree.train(parts, tiny_policy(), Guarded(log=(log,)), out=tmp_path / str(every), **knobs)
        saved = torch.load(run.path / "checkpoints" / "step-000002" / "training.pt", weights_only=True)
        states.append(saved["control"])
        assert log == []
        assert "test-" not in saved["control"]["state"] + saved["control"]["history"]
        assert "train-" in saved["control"]["history"]
    assert states[0] == states[1]
