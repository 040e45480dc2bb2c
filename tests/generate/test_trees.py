"""Tree growers on exact policies: contract, distribution, leaf counts, and what is saved by sharing."""

import asyncio
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from rolltree.control.ledger import Limits
from rolltree.engine.tabular import Letters, TabularEngine, enumerate_paths
from rolltree.generate.runner import grow
from rolltree.generate.signals import Signal
from rolltree.generate.stems import BySignal, OneAtATime, TwoWaves, best, scored
from rolltree.generate.strategy import TreeStrategy
from rolltree.generate.turnforks import TurnForks
from rolltree.recipe.treepo import SegmentTree
from rolltree.task.protocol import Item, Reply
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Forest, Tree

ENTROPY = Signal("entropy:full")
GROWERS = {
    "segments-even": SegmentTree(leaves=6, segment=4),
    "segments-likely": SegmentTree(leaves=6, segment=3, split="likely", fill="restart"),
    "segments-glued": SegmentTree(leaves=6, segment=2, fill="glued"),
    "segments-copied": SegmentTree(leaves=6, segment=4, ways=1, fill="copy"),
    "turn-forks": TurnForks(leaves=8, first=3, signal=Signal("entropy:top", 5)),
    "turn-forks-penalised": TurnForks(leaves=8, first=3, penalty=0.3, signal=Signal("entropy:top", 5)),
    "two-waves": TwoWaves(stems=2, positions=2, branches=2),
    "one-at-a-time": OneAtATime(5, BySignal(ENTROPY)),
}


def grown(strategy: TreeStrategy, task: object, n: int = 4, seed: int = 0) -> Forest:
    items = itertools.islice(task.items("train"), n)  # type: ignore[attr-defined]
    return asyncio.run(grow(strategy, tiny_engine(), task, items, seed=seed))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GROWERS)
def test_keeps_the_strategy_contract(name: str) -> None:
    check_strategy(GROWERS[name])


@pytest.mark.parametrize("name", ["segments-even", "segments-likely", "turn-forks"])
@pytest.mark.parametrize("task", [SpellTask(), Walk()], ids=lambda t: t.name)
def test_gives_exactly_the_leaves_asked_for(name: str, task: object) -> None:
    strategy = GROWERS[name]
    if name == "turn-forks" and isinstance(task, SpellTask):
        pytest.skip("forks after answers need an environment")
    for tree in grown(strategy, task):
        done = [leaf for leaf in tree.leaves() if leaf.status == "done"]
        assert len(done) == strategy.leaves  # type: ignore[union-attr]


def test_two_waves_give_m_times_one_plus_nb_leaves_and_pay_prefixes_once() -> None:
    for tree in grown(TwoWaves(stems=3, positions=2, branches=2, apart=1), SpellTask(), n=8):
        stems = [n for n in tree.children(tree.root) if n.birth == "root"]
        branches = [n for n in tree.walk() if n.birth == "resample"]
        places = [e for e in tree.events if e.kind == "select"]
        assert len(stems) == 3
        assert len(branches) == 2 * len(places)
        assert len(tree.leaves()) == 3 + len(branches)
        paths = sum(len(tree.prefix(leaf)) - len(tree.root) for leaf in tree.leaves())
        written = sum(len(n) for n in tree.walk() if n.role == "policy")
        shared = sum(len(tree.prefix(e.node)) - len(tree.root) for e in places for _ in range(2))
        assert paths - written == shared


def test_a_place_survives_cuts_above_it() -> None:
    tree = Tree("t", [0])
    leaf = tree.extend(0, [5, 6, 7, 8, 9], entropy=np.array([1, 5, 2, 4, 3], np.float32))
    found = best(scored(tree, leaf, ENTROPY.read), 3)
    assert [p.position for p in found] == [2, 4, 5]
    tree.cut(leaf, 1)
    tree.cut(leaf, 2)
    again = best(scored(tree, leaf, ENTROPY.read), 3)
    assert [(p.position, p.score) for p in again] == [(p.position, p.score) for p in found]
    assert [p.position for p in best(found, 2, apart=3)] == [2, 5]


def test_leaves_of_an_evenly_split_segment_tree_follow_the_policys_distribution() -> None:
    """Boundary forks preserve the distribution: a leaf found by uniform descent is distributed as the policy's own
    paths."""
    codec = Letters("ab", eos_id=2)

    def chain(prefix: tuple[int, ...]) -> list[float]:
        return [0.5, 0.3, 0.2] if prefix[-1] == 0 else [0.2, 0.5, 0.3]

    class Free(SpellTask):
        stop = ()
        max_tokens = 4

        def items(self, split, seed=0):  # type: ignore[no-untyped-def]
            for i, item in enumerate(super().items(split, seed)):
                yield type(item)(f"x{i}", "a", "any")

    task = Free(stop=(), max_tokens=4)
    forest = asyncio.run(
        grow(
            SegmentTree(leaves=4, segment=1, fill="none"),
            TabularEngine(chain, codec),
            task,
            itertools.islice(task.items("train"), 1500),
        )
    )
    distribution = dict(enumerate_paths(chain, 4, prefix=(0,), eos=2))
    rng = np.random.default_rng(0)
    seen: Counter[tuple[int, ...]] = Counter()
    for tree in forest:
        first = tree.children(tree.root)[int(rng.integers(len(tree.root.children)))]
        leaf = first
        while leaf.children:
            leaf = tree[leaf.children[int(rng.integers(len(leaf.children)))]]
        seen[tuple(int(a) for a in tree.prefix(leaf)[1:])] += 1
    assert set(seen) <= set(distribution)
    observed = [seen[path] for path in distribution]
    assert chisquare(observed, [p * len(forest) for p in distribution.values()]).pvalue > 1e-3


def test_forks_after_answers_are_likelier_where_uncertainty_rose() -> None:
    """With a steep slope, a fork happens exactly where this turn's entropy beats the first turn's of the same path."""
    rule = TurnForks(leaves=40, first=10, base=0.5, slope=1e6, signal=Signal("entropy:top", 5), fill="none")
    selected = 0
    for tree in grown(rule, Walk(), n=6, seed=3):
        for event in tree.events:
            if event.kind == "select":
                selected += 1
                assert event.numbers["now"] >= event.numbers["reference"]
    assert selected > 10


def test_the_penalty_ends_forking_in_a_row() -> None:
    """AEPO: with a penalty of 1 a prompt never forks in two rounds running."""
    for tree in grown(TurnForks(leaves=64, first=4, base=1.0, slope=0.0, penalty=1.0, fill="none"), Walk(), n=6):
        assert {e.numbers["consecutive"] for e in tree.events if e.kind == "select"} <= {0}


def test_one_at_a_time_never_reuses_a_place() -> None:
    strategy = OneAtATime(8, BySignal(ENTROPY), restart=0.0)
    for tree in grown(strategy, SpellTask(), n=4):
        cut_at = [tree.prefix(e.node).tobytes() for e in tree.events if e.kind == "select"]
        assert len(cut_at) == len(set(cut_at)) > 0


def test_backfill_is_recorded_with_its_reason() -> None:
    for tree in grown(SegmentTree(leaves=12, segment=2, ways=1), SpellTask(), n=4):
        backfills = [e for e in tree.events if e.kind == "backfill"]
        assert backfills
        assert all(e.numbers["missing"] > 0 for e in backfills)


def test_what_ends_in_the_first_segment_hands_its_fork_rights_on() -> None:
    """B = max(live, min(N - finished, d·ended + d·live)): one of two ended, so the other goes on four ways, not two."""

    def first_or_never(prefix: tuple[int, ...]) -> list[float]:
        return [0.5, 0.0, 0.5] if len(prefix) == 2 else [0.5, 0.5, 0.0]

    task = SpellTask(stop=(), max_tokens=6)
    items = list(itertools.islice(task.items("train"), 20))
    items = [type(item)(item.id, "aa", item.answer) for item in items]
    engine = TabularEngine(first_or_never, Letters("ab", eos_id=2))
    seen = set[tuple[int, int]]()
    for tree in asyncio.run(grow(SegmentTree(leaves=16, segment=2, ways=2, fill="none"), engine, task, items)):
        first = tree.children(tree.root)
        ended = sum(node.finish == "eos" for node in first)
        if ended < len(first):
            seen.add((ended, sum(len(node.children) for node in first)))
    assert seen == {(0, 4), (1, 4)}


def test_a_path_has_no_more_segments_than_rounds() -> None:
    engine = TabularEngine(lambda prefix: [0.5, 0.5, 0.0], Letters("ab", eos_id=2))
    task, item = SpellTask(stop=(), max_tokens=12), Item("x", "aa", "a")
    for tree in asyncio.run(grow(SegmentTree(leaves=4, segment=2, rounds=3, fill="none"), engine, task, [item])):
        assert {len(tree.prefix(leaf)) - len(tree.root) for leaf in tree.leaves()} == {6}
        assert {leaf.finish for leaf in tree.leaves()} == {"depth"}


def test_backfill_never_writes_behind_a_call_that_awaits_its_answer() -> None:
    places = 0
    for tree in grown(SegmentTree(leaves=8, segment=4, ways=1), Walk(), n=20):
        for event in tree.events:
            if event.kind == "backfill":
                places += 1
                assert tree[event.node].finish != "tool"
    assert places


class Silent(Walk):
    """A walk that is answered with nothing, in states that go on."""

    async def step(self, item: Item, state: int, text: str) -> Reply:
        return replace(await super().step(item, state, text), text="")


def test_a_fork_at_the_head_of_a_turn_stands_behind_an_answer_of_no_tokens() -> None:
    forks = 0
    for tree in grown(TwoWaves(2, 4, 2, scorer=BySignal(Signal("entropy:full"))), Silent(), n=20):
        for leaf in tree.leaves():
            path = tree.path(leaf)
            for above, below in itertools.pairwise(path):
                forks += below.birth == "resample" and above.role == "env"
                assert not (above.role == below.role == "policy" and above.finish == "tool")
    assert forks


def test_a_budget_that_ends_mid_tree_leaves_every_leaf_with_a_reason() -> None:
    task = Walk()
    items = list(itertools.islice(task.items("train"), 3))
    forest = asyncio.run(grow(GROWERS["turn-forks"], tiny_engine(), task, items, per_prompt=Limits(decoded=37)))
    for tree in forest:
        assert sum(len(n) for n in tree.walk() if n.role == "policy") <= 37
        assert all(leaf.status != "open" and (leaf.finish or leaf.status == "pruned") for leaf in tree.leaves())


def test_glued_leaves_stand_behind_a_prefix_they_were_not_written_behind() -> None:
    """TreePO's released fallback, for replication: log-probs are those of where the tokens stand, sampling_logprob is
    gone."""
    strategy = SegmentTree(leaves=12, segment=2, ways=1, fill="glued")
    moved = 0
    for tree in grown(strategy, SpellTask(), n=8):
        assert sum(leaf.status == "done" for leaf in tree.leaves()) == 12
        for event in tree.events:
            if event.kind == "splice":
                node = tree[event.node]
                moved += 1
                assert node.sampling_logprob is None
                assert node.logp is not None
                prefix = tree.prefix(node)
                start = len(prefix) - len(node)
                distribution = asyncio.run(tiny_engine().score(prefix, start)).logp
                assert node.logp == pytest.approx(distribution, abs=1e-5)
    assert moved


def test_a_fixed_reference_stands_for_all_paths() -> None:
    rule = TurnForks(leaves=40, first=10, slope=1e6, signal=Signal("entropy:top", 5), reference=1e9, fill="none")
    for tree in grown(rule, Walk(), n=4):
        assert not [e for e in tree.events if e.kind == "select"], "no turn is more uncertain than that"
