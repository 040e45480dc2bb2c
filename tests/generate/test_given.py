"""Rollouts that are given: as if the policy had written them, judged here, and weighed where their odds are known."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from rolltree.control.order import ControlError, Delivery, Order, Prompt, Written
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.control.schedule import preset
from rolltree.generate.forced import Given
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.rollout.group_builder import REPLACED
from rolltree.task.protocol import Item, Task
from rolltree.testing.tiny import SpellTask, Walk, policy, tiny_engine
from rolltree.tree import Tree
from tests.rollout.flying import fly


def item_of(task: Task) -> Item:
    return next(iter(task.items("train")))


def given(task: Task, *rollouts: Written) -> Tree:
    (tree,) = asyncio.run(grow(Given(rollouts), tiny_engine(), task, [item_of(task)]))
    return tree


def test_turns_are_forced_answered_and_judged_as_sampled_ones_are() -> None:
    left, right = Written(("ab!", "c!")), Written(("yx!", "y!"))
    tree = given(Walk(), left, right)
    assert [leaf.scores["reward"] for leaf in tree.leaves()] == [1.0, 0.0]
    assert [leaf.role for leaf in tree.leaves()] == ["env", "env"]
    for leaf in tree.leaves():
        path = tree.path(leaf)
        assert [n.role for n in path] == ["prompt", "policy", "env", "policy", "env"]
        for node in (path[1], path[3]):
            assert node.forced
            assert node.trainable
            before = tuple(int(t) for n in path[: path.index(node)] for t in n.actions)
            exact = [np.log(policy((*before, *map(int, node.actions[:i])))[t]) for i, t in enumerate(node.actions)]
            assert node.logp is not None
            np.testing.assert_allclose(node.logp, exact, rtol=1e-5)
            assert node.sampling_logprob is not None
            assert np.isnan(node.sampling_logprob).all(), "nobody sampled it"


def test_an_answer_ends_as_the_policy_ends_one_and_no_text_is_longer_than_the_limit() -> None:
    tree = given(SpellTask(), Written(("ab!",)), Written(("ab",)), Written(("a" * 40,)))
    ends = [(leaf.finish, len(leaf.actions), leaf.scores["reward"]) for leaf in tree.leaves()]
    assert ends == [("stop", 3, 1.0), ("eos", 3, 1.0), ("stop", 16, 1.0)]


def test_known_odds_stand_beside_the_policys_own() -> None:
    tree = given(SpellTask(), Written(("ab!",), ((-1.0, -2.0, -3.0),)), Written(("ab!",), ((-1.0,),)))
    known, mismatched = (leaf.sampling_logprob for leaf in tree.leaves())
    assert known is not None
    assert mismatched is not None
    np.testing.assert_allclose(known, [-1, -2, -3])
    assert np.isnan(mismatched).all(), "another tokenizer's odds belong to other tokens"


@pytest.mark.parametrize("task", [SpellTask(), Walk()])
def test_what_was_sampled_is_given_again_as_it_was(task: Task) -> None:
    """Orders with texts say their rollouts so that the same actions, odds and outcomes come again."""
    seen: list[Delivery] = []

    class Again:
        name, needs = "again", frozenset[str]()

        def start(self) -> Nothing:
            return Nothing()

        def plan(self, step: Step, state: Nothing) -> Plan:
            prompts = step.take()
            first = yield [Order(p, 2, texts=True) for p in prompts]
            second = yield [
                Order(d.order.prompt, arm="again", given=tuple(filter(None, d.written)))
                for d in first
                if any(d.written)
            ]
            seen.extend([*first, *second])

    flown = fly(preset("sync"), task=task, control=Again())
    again = [d for d in seen if d.order.arm == "again"]
    assert again
    for d in again:
        of = next(e for e in seen if e.order.prompt is d.order.prompt and e.order.arm == "plain")
        if all(of.written):
            assert (d.rewards, d.turns) == (of.rewards, of.turns)
            assert d.decoded == 0
    for group in flown.groups:
        tree = group.item.tree
        forced = [n for n in tree if n.forced]
        sampled = {(n.actions.tobytes(), None if n.sampling_logprob is None else n.sampling_logprob.tobytes())
                   for n in tree if n.role == "policy" and not n.forced}  # fmt: skip
        for node in forced:
            assert node.sampling_logprob is not None
            if np.isfinite(node.sampling_logprob).all():
                assert (node.actions.tobytes(), node.sampling_logprob.tobytes()) in sampled


def test_a_success_that_comes_in_takes_the_place_of_the_oldest_failure() -> None:
    class Rescue:
        name, needs = "rescue", frozenset[str]()

        def start(self) -> Nothing:
            return Nothing()

        def plan(self, step: Step, state: Nothing) -> Plan:
            first = yield [Order(p, given=(Written(("yx!",)), Written(("yy!",)))) for p in step.take()]
            yield [
                Order(d.order.prompt, arm="rescue", given=(Written((text,)),), replaces=1)
                for d, text in zip(first, ("a!", "y!", "b!"), strict=True)
            ]

    flown = fly(preset("sync"), updates=1, task=SpellTask(), control=Rescue(), strategy=Independent(2))
    for group, worked in zip(sorted(flown.groups[:3], key=lambda g: g.item.place), (True, False, True), strict=True):
        leaves = group.item.tree.leaves()
        out = [leaf.usage == REPLACED for leaf in leaves]
        assert out == [worked, False, False], "the oldest failure goes, and only for a success"


def test_what_makes_no_sense_is_refused() -> None:
    prompt = Prompt(item_of(SpellTask()), 0)
    with pytest.raises(ControlError, match="turn without text"):
        Written(("",))
    with pytest.raises(ControlError, match="as many as they are"):
        Order(prompt, 3, given=(Written(("a!",)),))
    with pytest.raises(ControlError, match="-1 environment steps"):
        Order(prompt, turns=-1)


def test_an_order_may_shorten_the_horizon_and_close_the_environment() -> None:
    class Horizon:
        name, needs = "horizon", frozenset[str]()

        def start(self) -> Nothing:
            return Nothing()

        def plan(self, step: Step, state: Nothing) -> Plan:
            delivered = yield [Order(p, 4, turns=t) for p, t in zip(step.take(), (0, 1, 99), strict=True)]
            told.extend(delivered)

    told: list[Delivery] = []
    fly(preset("sync"), updates=1, task=Walk(), control=Horizon(), strategy=Independent(4))
    assert [max(d.turns) for d in told[:2]] == [0, 1]
    assert 1 < max(told[2].turns) <= 6
