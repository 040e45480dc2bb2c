"""Gated forks: the gate's formulas, what is refused, and that chains of doubt do not swallow the leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.signals import Signal, SignalError
from rolltree.generate.stems import TwoWaves
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.views import effective_branches
from rolltree_papers.echo import Doubt, Gate, GatedForks, GateReading, Gauge

EASY = Gate(entropy=2.0, confidence=0.09, rise=0.0, depth=1, low=1.0, high=2.3)
"""Opens often under the contract's policy, whose rows are flat."""
FORKS = GatedForks(leaves=6, stems=2, gate=EASY, doubt=Doubt(floor=0.05, tail_floor=0.08, spike=0.4), chunk=4)


@pytest.mark.parametrize("ending", ["truncate", "prune"])
def test_keeps_the_strategy_contract(ending: str) -> None:
    check_strategy(replace(FORKS, doubt=replace(FORKS.doubt, ending=ending)))  # type: ignore[type-var]


def reading(entropy: list[float], confidence: list[float]) -> GateReading:
    return GateReading(np.arange(len(entropy)), np.array(entropy), np.array(confidence))


def test_all_three_conditions_must_hold_at_once() -> None:
    gate = Gate(entropy=1.0, confidence=0.15, rise=0.5, depth=2, group=1, before=2)
    flat = [0.1] * 6
    assert gate.first(reading([2.0, 0.1, 0.1, 1.6, 0.1, 0.1], flat)) == 3
    assert gate.first(reading([2.0, 0.1, 0.1, 0.9, 0.1, 0.1], flat)) is None
    assert gate.first(reading([2.0, 0.1, 1.6, 1.6, 1.6, 1.6], [0.2, 0.2, 0.2, 0.2, 0.1, 0.1])) is None
    assert gate.first(reading([1.6, 1.6, 1.6, 1.6, 1.6, 1.6], flat)) is None


@pytest.mark.parametrize(
    ("entropy", "group", "width"),
    # least + α(H − H_low)/(H_high − H_low) − β(C − θ)/|θ| with α 2, β 1, H_low 1, H_high 3, θ 1.2, as published
    [(1.0, 1.2, 1), (2.0, 1.2, 2), (3.0, 1.2, 3), (3.0, 0.6, 4), (3.0, 0.0, 4), (2.0, 2.4, 1), (2.0, 1.8, 2)],
)
def test_the_width_is_the_papers_formula(entropy: float, group: float, width: int) -> None:
    assert Gate(confidence=1.2, low=1.0, high=3.0).formula(entropy, group) == width


@pytest.mark.parametrize(
    ("gauge", "gate", "said"),
    [
        (Gauge(), Gate(entropy=3.5), "the gate's entropy: entropy:top-normalised over 10 >= 3.5 is never true"),
        (
            Gauge(confidence=Signal("confidence:neglog", 5)),
            Gate(confidence=1.2),
            "group confidence: confidence:neglog over 5 <= 1.2 is never true",
        ),
        (Gauge(), Gate(confidence=1.2), "is always true"),
        (Gauge(), Gate(rise=9.0), "rise of 9 is never true"),
    ],
)
def test_released_thresholds_are_refused_before_the_first_token(gauge: Gauge, gate: Gate, said: str) -> None:
    forks = GatedForks(gauge=gauge, gate=gate, doubt=None)
    with pytest.raises(SignalError, match=said):
        asyncio.run(grow(forks, tiny_engine(), SpellTask(), islice(SpellTask().items("train"), 1)))


@pytest.mark.parametrize(("published", "of"), [(0.4, "floor"), (1.0, "tail_floor")])
def test_released_pruning_thresholds_are_refused_too(published: float, of: str) -> None:
    neglog = Gauge(confidence=Signal("confidence:neglog", 5))
    doubt = replace(Doubt(gauge=neglog, floor=2.0, tail_floor=2.0), **{of: published})
    with pytest.raises(SignalError, match="never true"):
        doubt.check(27)


def test_signs_of_doubt_are_found_left_to_right() -> None:
    doubt = Doubt(floor=0.1, tail_floor=0.15, spike=0.5, group=1, tail=1, before=1)
    calm = [0.0] * 6
    assert doubt.first(reading(calm, [0.2] * 6)) is None
    assert doubt.first(reading(calm, [0.2, 0.2, 0.05, 0.2, 0.2, 0.2])) == (2, "low group confidence")
    assert doubt.first(reading(calm, [0.2, 0.18, 0.16, 0.14, 0.2, 0.2])) == (3, "falling tail confidence")
    assert doubt.first(reading([0.0, 0.2, 0.4, 1.0, 1.0, 1.0], [0.2] * 6)) == (3, "entropy spikes")


def test_forced_tokens_are_likely_not_drawn_and_told_apart() -> None:
    task = Walk()
    forest = asyncio.run(grow(FORKS, tiny_engine(), task, islice(task.items("train"), 3), seed=1))
    forced = [(tree, n) for tree in forest for n in tree if n.forced]
    assert forced
    for tree, node in forced:
        beside = [n for n in tree.children(tree[node.parent]) if not n.forced]  # type: ignore[index]
        assert all(n.actions[0] != node.actions[0] for n in beside if len(n))
        assert node.top is not None
        assert node.logp is not None
        assert node.sampling_logprob is not None
        assert np.isnan(node.sampling_logprob).all()
        row = dict(zip(node.top.ids[0].tolist(), node.top.logp[0].tolist(), strict=True))
        assert node.logp[0] == pytest.approx(row[int(node.actions[0])], abs=1e-5)
    for tree in forest:
        assert sum(leaf.status == "done" for leaf in tree.leaves()) == FORKS.leaves


def test_truncated_paths_end_where_the_sign_stood() -> None:
    task = SpellTask()
    doubt = replace(FORKS.doubt, ending="prune", floor=0.065)  # type: ignore[type-var]
    forest = asyncio.run(grow(replace(FORKS, doubt=doubt), tiny_engine(), task, islice(task.items("train"), 6)))
    pruned = [(tree, e) for tree in forest for e in tree.events if e.kind == "prune"]
    assert pruned
    for tree, event in pruned:
        path = tree.prefix(tree[event.node])  # type: ignore[index]
        assert event.numbers["position"] < len(path) <= event.numbers["position"] + FORKS.chunk


TRAP = Letters("?abcdefghij", eos_id=11)


def trap(prefix: tuple[int, ...]) -> list[float]:
    """Five first tokens. Behind "a" lie six nearly uniform ones; behind the others one real choice."""
    row = np.full(12, 1e-4)
    done = len(prefix) - 1
    if done == 0:
        row[1:6] = 1.0
    elif done >= 8:
        row[11] = 100.0
    elif prefix[1] == 1 and done <= 6:
        row[1:11] = 1.0
    elif done == 6:
        row[1:4] = 1.0
    else:
        row[7] = 100.0
    return list(row / row.sum())


class Trapped(SpellTask):
    def items(self, split, seed=0):  # type: ignore[no-untyped-def]
        for i, item in enumerate(super().items(split, seed)):
            yield type(item)(f"x{i}", "?", "any")


def test_a_chain_of_uncertain_tokens_swallows_entropy_forks_but_not_gated_ones() -> None:
    """ECHO's own example: entropy alone spends its branches in the trap, gates need a rise and fork elsewhere."""
    task = Trapped(stop=(), max_tokens=12)
    items = list(islice(task.items("train"), 40))
    gate = Gate(entropy=0.8, confidence=0.199, rise=0.8, depth=2, group=1, low=0.4, high=1.6, most=2)
    gated = GatedForks(leaves=16, stems=5, gate=gate, doubt=None)

    class Greedy(TwoWaves):
        """As many branches at the most uncertain places of any stem: entropy alone."""

        async def grow_tree(self, tree: Tree, hand) -> None:  # type: ignore[no-untyped-def]
            from rolltree.generate.stems import best, branch, scored, stems

            leaves = await stems(hand, 5, want=self.want)
            found = [p for leaf in leaves for p in scored(tree, leaf, Signal("entropy:full").read) if p.position > 1]
            for place in best(sorted(found, key=lambda p: -p.score), 11, apart=0):
                await branch(hand, place, 1, want=self.want, why="highest entropy")

    effective = {}
    for name, strategy in (("gated", gated), ("entropy", Greedy())):
        forest = asyncio.run(grow(strategy, TabularEngine(trap, TRAP), task, items, seed=2))
        stuck = [tree for tree in forest if any(c.actions[0] == 1 for c in tree.children(tree.root))]
        effective[name] = np.mean([effective_branches(tree) for tree in stuck])
        assert all(len(tree.leaves()) == 16 for tree in forest)
    assert effective["gated"] > 1.3 * effective["entropy"]


def test_restarts_are_watched_like_stems() -> None:
    """A sign that shows on every path: no leaf is longer than the chunk in which it shows."""
    task = SpellTask(stop=(), max_tokens=40)
    doubt = Doubt(floor=0.099, tail_floor=0.08, spike=0.4, ending="truncate")
    shut = Gate(entropy=2.3, confidence=0.0385, rise=2.0, depth=1)
    strategy = GatedForks(leaves=8, stems=2, gate=shut, doubt=doubt, chunk=4)
    forest = asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 4), seed=3))
    for tree in forest:
        restarts = [n for n in tree.walk() if n.birth == "restart"]
        assert len(restarts) == 6
        for leaf in tree.leaves():
            path = tree.prefix(leaf)[len(tree.root) :]
            signs = [e for e in tree.events if e.kind == "close" and e.node == leaf.id and "position" in e.numbers]
            assert leaf.finish == "eos" or signs or len(path) < 8, (len(path), leaf.finish)
