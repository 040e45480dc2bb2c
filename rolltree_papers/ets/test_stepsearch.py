"""Step search: the program against brute force, REBASE's counts, and what coverage and economy are for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.engine.tabular import TabularEngine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Entry
from rolltree.generate.runner import grow
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Forest
from rolltree_papers.ets import Program, StepSearch, clusters, rebase
from tests.generate.modes import MODES, TABLE, Noisy, Right, modes


def program(seed: int, n: int) -> Program:
    """A random tree of two levels above n paths."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(n, 0.7))
    above = [[0, 1 + int(rng.integers(3)), 10 + int(rng.integers(5))] for _ in range(n)]
    return Program(share, above, [1.0] * n, [[1.0] * 3] * n, [int(c) for c in rng.integers(0, 4, n)],
                   float(rng.uniform(0.3, 1.5)), float(rng.choice([0.0, 1.5])))  # fmt: skip


def objective(p: Program, chosen: Sequence[int]) -> float:
    """The program written out, one set at a time."""
    every = {a for ids in p.above for a in ids}
    used = {a for i in chosen for a in p.above[i]}
    cost = (len(used) + len(chosen)) / (len(every) + len(p.share))
    return float(sum(p.share[i] for i in chosen) - p.economy * cost
                 + p.cover * len({p.cluster[i] for i in chosen}) / (max(p.cluster) + 1))  # fmt: skip


@given(st.integers(0, 10_000), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_the_solution_is_the_best_of_all_sets(seed: int, n: int) -> None:
    p = program(seed, n)
    found = objective(p, np.flatnonzero(p.solve()).tolist())
    best = max(objective(p, [i for i in range(n) if mask >> i & 1]) for mask in range(1, 1 << n))
    assert found == pytest.approx(best)


def test_hill_climbing_nearly_always_finds_the_best_set() -> None:
    gaps = [float(p.values(np.array([p.solve()]))[0] - p.values(np.array([p.local()]))[0])
            for p in (program(seed, 12) for seed in range(60))]  # fmt: skip
    assert min(gaps) > -1e-9
    assert np.mean(np.array(gaps) < 1e-9) >= 0.9
    assert max(gaps) < 0.1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_rebase_gives_away_the_width_and_more_to_better_paths(scores: list[float], width: int) -> None:
    counts = rebase(scores, width)
    assert sum(counts) == width
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    assert all(counts[a] >= counts[b] - 1 for a, b in pairwise(order))


def test_clusters_join_what_points_the_same_way() -> None:
    vectors = np.array([[1, 0], [0.99, 0.02], [0, 1], [0.02, 2.0], [-1, 0]], np.float64)
    label = clusters(vectors)
    assert label[0] == label[1] != label[2] == label[3] != label[4]
    assert len(set(clusters(vectors, cut=2.0))) == 1


def searched(strategy: StepSearch, n: int = 30) -> Forest:
    task = Right(max_tokens=10, stop=())
    engine = TabularEngine(modes, MODES, embeddings=TABLE)
    return asyncio.run(grow(strategy, engine, task, islice(task.items("train"), n), seed=4))


def accuracy(forest: Forest) -> float:
    return float(np.mean([tree.notes.get("answer") == "c" for tree in forest]))


def kept(forest: Forest) -> float:
    return float(np.mean([len({n.id for leaf in t.leaves() if leaf.status == "done" for n in t.path(leaf)})
                          for t in forest]))  # fmt: skip


def test_ets_keeps_fewer_nodes_than_rebase_at_the_same_width() -> None:
    base = StepSearch(9, 1, "", Noisy())
    ets, plain = searched(base, 10), searched(replace(base, select="rebase"), 10)
    assert kept(ets) < 0.8 * kept(plain)
    for tree in ets:
        assert sum(leaf.status == "done" for leaf in tree.leaves()) == 9
        assert all("value" in leaf.scores for leaf in tree.leaves() if leaf.status == "done")


def test_without_the_coverage_term_ways_that_look_worse_early_are_lost() -> None:
    base = StepSearch(9, 1, "", Noisy(), economy=2.5)
    assert accuracy(searched(base, 12)) > accuracy(searched(replace(base, cover=0.0), 12)) + 0.3


def test_a_beam_keeps_the_root_of_the_width() -> None:
    for tree in searched(StepSearch(9, 2, "", Noisy(), "beam"), 3):
        rounds = [e for e in tree.events if e.kind == "select"]
        assert rounds
        assert all(sum(w > 0 for w in e.numbers["ways"]) <= 3 for e in rounds)


def test_the_delimiter_ends_a_step() -> None:
    task = SpellTask(stop=())
    forest = asyncio.run(grow(StepSearch(4, 16, "!"), tiny_engine(), task, islice(task.items("train"), 3)))
    for tree in forest:
        for node in tree:
            if node.role == "policy" and node.children:
                assert tree.path(node)[-1].actions[-1] == 25 or len(node) == 16


@dataclass(frozen=True)
class Bits(Noisy):
    """As good as alike for all that begin alike, but for last bits that depend on who asks when."""

    seed: int = 0

    def values(self, hand: Hand, ends: Sequence[Entry]) -> Sequence[float]:
        bits = np.random.default_rng((self.seed, hand.tree.root.id, len(ends))).uniform(-1e-8, 1e-8, len(ends))
        return [0.5 + 0.1 * (end.text[:1] == "c") + bit for end, bit in zip(ends, bits, strict=True)]


@pytest.mark.parametrize("select", ["ets", "beam", "dvts"])
def test_paths_that_wrote_the_same_are_not_told_apart_by_last_bits(select) -> None:
    """A log-prob's last bits change with the batch that it was computed in, so with the load of the machine."""
    grown = [searched(StepSearch(9, 1, "", Bits(seed=seed), select), 10) for seed in (1, 2)]
    told = [[[(n.id, n.actions.tobytes(), n.status) for n in tree] for tree in forest] for forest in grown]
    assert told[0] == told[1]
