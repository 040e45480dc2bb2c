"""What every control owes: it keeps its budget, copes with odd steps, and goes on exactly from its stored state."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rolltree.control.brief import brief
from rolltree.control.history import History
from rolltree.control.order import ControlError, Order, Prompt
from rolltree.control.plan import Control, Step, Uniform
from rolltree.control.registry import controls, load_control
from rolltree.errors import RolltreeError
from rolltree.task.protocol import Item
from rolltree.tree.store.values import dumps, loads
from studies.prompts.world import Log, PromptWorld, run

SMALL = {"vade": {"pool": 20}, "shuffled": {"pool": 20}, "dots": {"pool": 20, "references": 4},
         "stagent": {"pool": 20}, "drive": {"pool": 20, "sets": (10, 5), "broad": 2, "each": 2, "hard": 8}}  # fmt: skip


def small(name: str) -> Control:
    return load_control(name, **SMALL.get(name, {}))


def told(logs: list[Log]) -> list[tuple]:
    return [(d.order.prompt.uid, d.order.arm, d.order.width, dict(d.order.marks), d.rewards)
            for log in logs for d in log.delivered]  # fmt: skip


EVERY = pytest.mark.parametrize("name", list(controls()))


@pytest.mark.papers("dots", "drive", "stagent", "vade")
@EVERY
def test_a_run_goes_on_from_its_stored_state_as_if_it_had_not_stopped(name):
    whole = PromptWorld(40, seed=3)
    logs = run(small(name), whole, 6, prompts=5, width=4)
    world, control, history = PromptWorld(40, seed=3), small(name), History()
    state = control.start()
    first = run(control, world, 3, prompts=5, width=4, state=state, history=history)
    state, history = loads(dumps(state)), loads(dumps(history))
    rest = run(small(name), world, 3, prompts=5, width=4, state=state, history=history, first=4)
    assert told(first + rest) == told(logs)
    assert np.array_equal(whole.logits, world.logits)


@pytest.mark.papers("dots", "drive", "stagent", "vade")
@EVERY
def test_plans_do_not_depend_on_anything_but_seed_and_past(name):
    a, b = (told(run(small(name), PromptWorld(40, seed=2), 4, prompts=5, width=4)) for _ in range(2))
    assert a == b
    assert a != told(run(small(name), PromptWorld(40, seed=5), 4, prompts=5, width=4))


@pytest.mark.papers("dots", "drive", "stagent", "vade", "xrpo")
@pytest.mark.parametrize("name", ["uniform", "shuffled", "vade", "xrpo", "rollout-gdro"])
def test_these_spend_exactly_their_budget_or_less(name):
    for log in run(small(name), PromptWorld(60, seed=4), 6, prompts=6, width=4):
        assert log.rollouts <= 6 * 4


@pytest.mark.papers("dars", "v05")
def test_refills_replace_prompts_without_variance_under_any_control():
    world = PromptWorld(logits=np.tile([50.0, 50.0, 0.0], 40), drift=0.0, gain=0.0)
    for control in (Uniform(), load_control("dars"), load_control("v05")):
        (log,) = run(control, replace_taken(world), 1, prompts=6, width=8, rounds=6)
        assert log.effective >= 6
        assert log.groups > 6


@pytest.mark.papers("dots", "vade")
@pytest.mark.parametrize("name", ["vade", "dots", "shuffled"])
def test_a_refill_from_a_pool_does_not_ask_a_prompt_again(name):
    """Half of the prompts have no variance, so a step takes several rounds; no prompt becomes two of its groups."""
    world = PromptWorld(logits=np.tile([50.0, 0.0], 40), drift=0.0, gain=0.0)
    logs = run(load_control(name, pool=60), world, 4, prompts=8, width=8, rounds=4)
    asked = [[d.order.prompt.uid for d in log.delivered if d.order.for_training] for log in logs]
    assert max(map(len, asked)) > 8
    assert all(len(set(uids)) == len(uids) for uids in asked)
    for log in run(load_control(name, pool=10), replace_taken(world), 2, prompts=8, width=8, rounds=4):
        assert log.groups >= 10, "a pool that is used up is asked again"


@pytest.mark.papers("vade")
def test_a_step_of_several_rounds_is_one_step_for_what_was_seen_before():
    """Evidence fades with steps; refills within a step are no steps."""
    world = PromptWorld(logits=np.tile([50.0, 0.0], 40), drift=0.0, gain=0.0)
    control = load_control("vade", pool=60)
    state = control.start()
    logs = run(control, world, 3, prompts=8, width=8, rounds=4, state=state)
    assert max(log.groups for log in logs) > 8
    assert state.beliefs.step == 3


@pytest.mark.papers("adhint", "seele")
@pytest.mark.parametrize(("name", "width"), [("adhint", 5), ("adhint", 8), ("seele", 11), ("seele", 8)])
def test_what_several_rounds_spend_on_a_prompt_is_the_recipes_width(name, width):
    for log in run(load_control(name), PromptWorld(40, seed=1), 2, prompts=6, width=width):
        assert log.rollouts == 6 * width


def replace_taken(world: PromptWorld) -> PromptWorld:
    return replace(world, taken=0)


@pytest.mark.papers("hbpo")
def test_hbpo_announces_a_budget_by_the_word_of_its_arm():
    told = load_control("hbpo", budgets=(8, 16, 32), template="{arm}:")
    log = run(told, PromptWorld(seed=0), 1, prompts=4)[0]
    said = {(order.brief["budget"].text, order.leaf_marks["budget"]) for order in (d.order for d in log.delivered)}
    assert said == {("0:", 8.0), ("1:", 16.0), ("2:", 32.0)}


@pytest.mark.papers("e1")
def test_e1_takes_the_effort_that_an_item_asks_for_itself():
    def plan(column, meta):
        item = Item("a", "2|1+1=", 2, 1, meta)
        supply = SimpleNamespace(take=lambda count: [item] * count)
        step = Step(1, 1, 8, np.random.default_rng(0), supply, History())
        (orders,) = load_control("e1", column=column).plan(step, None)
        return orders[0]

    order = plan("share", {"share": 0.75})
    assert order.marks == {"effort": 0.75}
    assert order.prompt.item.prompt == "2|1+1=", "it says it already"
    assert plan("", {"share": 0.75}).prompt.item.prompt.endswith("2|1+1=")
    for wrong in ({}, {"share": 0}, {"share": 1.5}, {"share": "much"}, {"share": True}):
        with pytest.raises(ControlError, match=r"item 'a' has .* in column 'share'; an effort is a number above 0"):
            plan("share", wrong)


@pytest.mark.papers("dars", "e1", "guide", "hbpo", "v05", "vade")
def test_names_and_knobs_that_make_no_sense_are_refused_in_one_sentence():
    prompt = Prompt(Item("a", "?", 1), 0)
    for make, said in (
        (lambda: load_control("darss"), "dars"),
        (lambda: load_control("dars", shedule="hard"), "did you mean 'schedule'"),
        (lambda: load_control("dars", schedule="x"), "schedule='x'"),
        (lambda: load_control("vade", pool=0), "pool=0"),
        (lambda: load_control("v05", least=9, most=4), "least=9"),
        (lambda: load_control("hbpo", budgets=(3,)), "budgets="),
        (lambda: load_control("guide", template="x"), "template='x'"),
        (lambda: load_control("e1", least=0.01, most=0.04), "from 0.01 to 0.04"),
        (lambda: Order(prompt, 0), "0 rollouts of 'a'"),
        (lambda: Order(prompt, brief=brief("x")), "an arm of its own"),
        (lambda: Order(prompt, arm="aided", brief=brief("x", before=True)), "hide it"),
    ):
        with pytest.raises(RolltreeError, match=said):
            make()
    assert issubclass(ControlError, ValueError)
