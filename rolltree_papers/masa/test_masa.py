"""MASA: what is read from a prediction, what it is worth, and when it may be acted on."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from rolltree.control.order import PLAIN, ControlError, Grades, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.config import ControlState
from rolltree.testing.tiny import CODEC
from rolltree.tree.forest import assert_conserved
from rolltree_papers.masa import Foretold, Masa, Trust, agreed, asks_for, read, reward, truth
from studies.prompts.world import PromptWorld, run
from tests.train.test_control import Told, gather


def test_predictions_are_read_from_json_or_from_numbers_in_order():
    whole = {"math_notion": ["Triangles", "sines"], "pass_rate": 3, "solution_length": 120}
    assert read(f"<think>{{}} hm</think> {json.dumps(whole)}") == Foretold(3, 120, ("triangle", "sine"))
    assert read("6 of 8? 30 tokens").passes == 6
    assert read("3, 24\n") == Foretold(3, 24)
    assert read("9 40") == Foretold(None, 40)
    assert read('{"pass_rate": "many", "solution_length": -3, "math_notion": "x"}') == Foretold()
    assert read('{"pass_rate": ') == read("").__class__(None, None, ("pas", "rate"))
    assert read("9" * 5000) == Foretold()
    for digits in (400, 5000):
        assert read(f'{{"pass_rate": 3, "solution_length": {"9" * digits}}}') == Foretold(3)
    assert read(f'{{"math_notion": {"[" * 5000}{"]" * 5000}}}').passes is None


def test_rewards_are_those_of_the_released_code():
    true = truth([1, 1, 0, 0], [10, 20, 30, 5], ["a Triangle here", "sine", "sine sine", "no"])
    assert reward(Foretold(4), true, "", ("pass",)) == 1.0
    assert reward(Foretold(5), true, "", ("pass",)) == pytest.approx(0.01 ** (1 / 8))
    assert [reward(Foretold(length=n), true, "", ("length",)) for n in (10, 11, 19, 20)] == [0, 1, 1, 0]
    assert reward(Foretold(notions=("triangle", "sine")), true, "", ("notion",)) == 0.5
    assert reward(Foretold(notions=("triangle",)), true, "a triangle", ("notion",)) == 0.0
    assert reward(Foretold(4, 15, ("triangle",)), true, "") == 1.0
    assert reward(Foretold(), true, "") == 0.0
    alone = truth([1, 0], [10, 12], ["a", "b"])
    assert reward(Foretold(length=10), alone, "", ("length",)) == 0.0, "a single length can never be met"
    none = truth([0, 0], [10, 12], ["a", "b"])
    assert reward(Foretold(0, 11), none, "", ("pass", "length")) == 0.5


def test_what_a_group_says_together():
    said = agreed([Foretold(8, 10), Foretold(8, 30), Foretold(0), Foretold()])
    assert (said.trivial, said.hopeless, said.length) == (0.5, 0.25, 20)
    assert said.rate == pytest.approx(16 / 24)
    assert agreed([Foretold()]).rate is None
    assert agreed([]).trivial == 0.0


def test_trust_is_earned_by_checked_predictions_and_can_be_lost():
    trust = Trust(0.9, calls=10, keep=0.95)
    for _ in range(9):
        trust.check(True)
        assert not trust.earned
    for _ in range(20):
        trust.check(True)
    assert trust.earned
    for _ in range(3):
        trust.check(False)
    assert not trust.earned


def test_half_of_the_groups_foretell_and_are_graded_by_the_other_half():
    control = Masa(template="{prompt}", parts=("pass", "length"))
    parts = replace(load_recipe("grpo", group=4).build(), control=control)
    state = ControlState(control)
    (batch,), _ = gather(parts, Told(), 5, control=state)
    assert_conserved(batch.trees, settled=True)
    metas = [t for t in batch.kept if any(leaf.notes.get("arm") == "meta" for leaf in t.leaves())]
    plain = [t for t in batch.kept if t not in metas]
    assert (len(plain), len(metas)) == (3, 2)
    assert [t in metas for t in batch.kept] == [False, True, False, True, False], "each update learns from both"
    by_item = {t.item: t for t in plain}
    for tree in metas:
        assert all(leaf.notes["arm"] == "meta" for leaf in tree.leaves())
        ends = by_item[tree.item].leaves()
        true = truth([leaf.scores["reward"] for leaf in ends], [len(leaf) for leaf in ends], [""] * len(ends))
        for leaf in tree.leaves():
            said = read(CODEC.decode(leaf.actions))
            assert leaf.scores == {"reward": reward(said, true, "", ("pass", "length"))}
    item = plain[0].item
    assert set(state.history.arms[item]) == {PLAIN, "meta"}
    assert state.history.tally(item).seen == 4, "what the meta arm is worth is no pass rate"
    assert batch.numbers["budget/control/meta_readable"] == 0.0
    assert batch.numbers["budget/arm/meta"] == 8


@dataclass(frozen=True)
class Hasty:
    """Grades what nobody ordered, or too little of it."""

    place: int
    needs = frozenset()

    def start(self) -> Nothing:
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        yield [Order(p, 2, "meta", judged=False) for p in step.take()]
        yield Grades({self.place: (1.0,)})


@pytest.mark.parametrize(("place", "said"), [(99, "place 99, where 0 rollouts"), (0, "1 outcomes .* where 2 rollouts")])
def test_grades_for_nobody_are_refused_in_a_sentence(place: int, said: str):
    parts = replace(load_recipe("grpo", group=2).build(), control=Hasty(place))
    with pytest.raises(ControlError, match=said):
        gather(parts, Told())


def test_hopeless_prompts_are_skipped_only_after_that_came_true_often_enough_and_some_are_spared():
    world = PromptWorld(logits=np.full(40, -50.0), drift=0.0)
    logs = run(Masa(efficient=True, explore=0.2), world, 20, prompts=8, width=4)
    solved = [sum(d.order.judged for d in log.delivered) for log in logs]
    assert solved[:3] == [4] * 3
    assert 0 < sum(solved[8:]) < 2 * 12
    never = run(
        Masa(efficient=True, trust=1.0), PromptWorld(logits=np.full(40, -50.0), drift=0.0), 20, prompts=8, width=4
    )
    assert all(sum(d.order.judged for d in log.delivered) == 4 for log in never)


def test_solutions_are_cut_at_a_multiple_of_a_length_that_proved_safe():
    logs = run(Masa(efficient=True, explore=0.0), PromptWorld(30, seed=2, mean=1.0), 20, prompts=8, width=8)
    limits = [[d.order.limit for d in log.delivered if d.order.judged] for log in logs]
    assert set(limits[0]) == {None}
    assert set(limits[-1]) == {20}


def test_knobs_that_make_no_sense_are_refused():
    for knobs, said in (({"template": "x"}, "template='x'"), ({"parts": ("x",)}, "parts="), ({"multiple": 0.5}, "0.5")):
        with pytest.raises(ControlError, match=said):
            Masa(**knobs)
    assert "{prompt}" in asks_for(("notion", "pass", "length"))
    Masa(template=asks_for(("pass",)))
