"""Vines: where they set out from, that the environment is really set back, and that outcomes choose nothing."""

from __future__ import annotations

import asyncio
from itertools import islice

from rolltree.generate.runner import grow
from rolltree.task.protocol import Verdict
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import CODEC, Walk, tiny_engine
from rolltree_papers.poly_ppo import Vines


class Contrary(Walk):
    async def verify(self, item, state, text):
        verdict = await super().verify(item, state, text)
        return Verdict(1 - verdict.score, answer="same")


def grown(strategy, task=None, n=4):
    task = task or Walk()
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), n), seed=2))


def chosen(tree):
    return {e.node for e in tree.events if e.kind == "select"}


def test_keeps_the_strategy_contract():
    check_strategy(Vines(2, 1, 2))


def test_each_chosen_state_gets_its_vines_and_nothing_else_does():
    shared = 0
    for tree in grown(Vines(4, 2, 3)):
        vines = [n for n in tree if n.birth == "vine"]
        by_state = {s: sum(v.parent == s for v in vines) for s in chosen(tree)}
        assert set(by_state.values()) == {3}
        assert len(vines) == 3 * len(by_state)
        assert {tree[s].role for s in by_state} <= {"prompt", "env"}
        assert len(by_state) <= 8
        assert sum(n.birth == "root" for n in tree.children(tree.root)) == 4
        shared += len(by_state) < 8
    assert shared  # the prompt, chosen by two rollouts, has its vines once


def test_the_environment_is_set_back_to_the_state():
    for tree in grown(Vines(3, 2, 4)):
        for leaf in tree.leaves():
            here, word = 4, ""
            for node in tree.path(leaf)[1:]:
                if node.role == "policy":
                    word += CODEC.decode(node.actions)
                else:
                    here, word = here + (-1 if word[:1] in set(CODEC.alphabet[:12]) else 1), ""
                    assert node.state == here
            assert leaf.scores["reward"] == float(here == 2)


def test_states_are_chosen_without_looking_at_outcomes():
    plain, contrary = grown(Vines(4, 2, 3)), grown(Vines(4, 2, 3), Contrary())
    assert [chosen(t) for t in plain] == [chosen(t) for t in contrary]
    assert {leaf.scores["reward"] for _, leaf in plain.leaves()} == {0.0, 1.0}
