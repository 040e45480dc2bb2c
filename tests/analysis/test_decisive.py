"""The ranking is the exact change of value where that is known, and its intervals hold it as often as they say."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from scipy import stats

from rolltree.analysis.decisive import decisions, even_weights
from rolltree.analysis.prefix import AnalysisError, merged
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.metrics.reward import difference
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import save
from rolltree.tree.table import table
from tests.analysis import exact


def told(found, tree):
    """Prefix and token of every judged branch → its change."""
    out = {}
    for fork in found.forks:
        for branch in fork.branches:
            node = tree[branch.node]
            prefix = tuple(tree.prefix(node)[: -len(node) or None].tolist()) + tuple(node.actions[: branch.at].tolist())
            out[(*prefix[len(tree.root) :], int(branch.actions[0]))] = branch
    return out


def test_an_enumerated_tree_ranks_by_the_exact_change_of_value():
    tree, chance = exact.whole_tree()
    found = decisions(table([tree]), weights=chance, prior=0, least=1)
    branches = told(found, tree)
    changes = {path: exact.value(path) - exact.value(path[:-1]) for path in branches}
    assert len(branches) >= 15
    for path, branch in branches.items():
        assert branch.change == pytest.approx(changes[path], abs=1e-12)
        assert branch.shrunk == pytest.approx(branch.change, abs=1e-12)
        assert branch.low <= branch.change <= branch.high
    best = [max((abs(changes[p]) for p, b in branches.items() if b in f.branches)) for f in found.forks]
    assert best == sorted(best, reverse=True)
    decisive = [abs(f.decisive.change) for f in found.forks]
    assert decisive == pytest.approx(best)


def test_a_group_of_samples_forks_where_its_answers_differ():
    """Runs that begin alike are merged: counts and changes are those of the plain shares."""
    tree = exact.flat_tree(np.random.default_rng(1), 400)
    branches = told(decisions(table([tree]), prior=0), tree)
    leaves = [(tuple(n.actions.tolist()), n.scores["reward"]) for n in tree.leaves()]
    assert any(len(path) == 2 for path in branches)
    for path, branch in branches.items():
        here = [r for p, r in leaves if p[: len(path) - 1] == path[:-1]]
        mine = [r for p, r in leaves if p[: len(path)] == path]
        assert (branch.leaves, branch.continuations) == (len(mine), pytest.approx(len(mine)))
        assert branch.change == pytest.approx(np.mean(mine) - np.mean(here))
        assert branch.share == pytest.approx(len(mine) / len(here))


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Over groups and uneven trees of the enumerated problem; share and value are those of the sample's own fork."""
    held = total = 0
    rng = np.random.default_rng(2)
    for _ in range(200):
        tree = exact.flat_tree(rng, 24)
        for path, b in told(decisions(table([tree])), tree).items():
            after, chance = exact.value(path[:-1] + tuple(b.actions.tolist())), exact.row(exact.PROMPT + path[:-1])
            first = chance[path[-1]]
            others = (exact.value(path[:-1]) - first * exact.value(path)) / (1 - first)
            held += b.low - 1e-9 <= (1 - b.share) * (after - others) <= b.high + 1e-9
            total += 1
    assert total > 500
    assert held / total >= 0.94


def test_leaves_that_share_tokens_behind_the_fork_are_one_observation():
    """Eight leaves of one continuation say no more than one; two continuations of four say as much as two."""
    tree = Tree("t", [1, 2])
    good, bad = tree.extend(0, [5]), tree.extend(0, [6])
    for stem in (tree.extend(good, [7, 7]), tree.extend(good, [8, 8])):
        for i in range(4):
            exact.leaf(tree, stem, [10 + i], 1.0)
    stem = tree.extend(bad, [9, 9])
    for i in range(8):
        exact.leaf(tree, stem, [20 + i], float(i == 0))
    (fork,) = decisions(table([tree])).forks[:1]
    assert [b.leaves for b in fork.branches] == [8, 8]
    by_token = {int(b.actions[0]): b for b in fork.branches}
    assert by_token[5].continuations == pytest.approx(2)
    assert by_token[6].actions.tolist() == [6, 9, 9]
    assert by_token[6].continuations == pytest.approx(8)
    assert by_token[5].low == pytest.approx(0.5 * difference(1.0, 2, 1 / 8, 1).low)


def test_a_branch_that_was_forked_more_often_does_not_weigh_more():
    tree = Tree("t", [1])
    often, once = tree.extend(0, [5]), tree.extend(0, [6])
    for i in range(6):
        exact.leaf(tree, often, [10 + i], 1.0)
    for i in range(2):
        exact.leaf(tree, once, [20 + i], 0.0)
    (fork,) = decisions(table([tree])).forks
    assert fork.before == pytest.approx(0.5)
    assert sorted(b.change for b in fork.branches) == pytest.approx([-0.5, 0.5])
    weights = even_weights(table([tree]).shape, np.ones(8, bool))
    assert weights[table([tree]).leaf] == pytest.approx([1 / 12] * 6 + [1 / 4] * 2)


def test_luck_does_not_lead_the_list():
    """One of two lucky rollouts changes more by the plain numbers, ten of ten are ranked above."""
    tree = Tree("few", [1])
    for i, reward in enumerate((1.0, 1.0, 0.0, 0.0)):
        exact.leaf(tree, 0, [5 if reward else 6, 10 + i], reward)
    many = Tree("many", [1])
    for i in range(40):
        exact.leaf(many, 0, [5 if i < 20 else 6, 100 + i], float(i < 19))
    plain = decisions(table([tree, many]), prior=0)
    assert [f.tree for f in plain.forks] == ["few", "many"]
    ranked = decisions(table([tree, many]))
    assert [f.tree for f in ranked.forks] == ["many", "few"]
    assert ranked.forks[0].decisive.clear
    assert not ranked.forks[1].decisive.clear
    assert (ranked.clear, ranked.branches) == (2, 4)


def test_the_first_letter_decides_what_the_engine_samples():
    """Independent rollouts of a tiny task by the exact engine: the reward depends on the first letter alone."""
    task = SpellTask()
    forest = asyncio.run(grow(Independent(200), tiny_engine(), task, [next(task.items("train"))], seed=3))
    found = decisions(table(forest))
    root = len(next(iter(forest)).root)
    assert found.forks[0].position == root
    for branch in found.forks[0].branches:
        assert branch.after == float(int(branch.actions[0]) < 12)
    assert all(f.position == root for f in found.forks)


def test_saved_forests_say_the_same(tmp_path):
    trees = [exact.flat_tree(np.random.default_rng(s), 90) for s in (4, 5)]
    trees[1].id = "other"
    here, there = decisions(table(trees)), decisions(open_forest(save(trees, tmp_path / "f")))
    assert len(here.forks) == len(there.forks) > 3
    for a, b in zip(here.forks, there.forks, strict=True):
        assert (a.tree, a.position, a.before, a.decisive.low) == (b.tree, b.position, b.before, b.decisive.low)


def test_what_is_pruned_or_failed_is_unknown_not_wrong():
    tree = exact.flat_tree(np.random.default_rng(6), 60)
    before = decisions(table([tree]))
    lost = tree.extend(0, [0, 0, 0])
    tree.prune(lost, "below the bar")
    again = decisions(table([tree]))
    assert [(f.position, f.before, f.leaves) for f in before.forks] == [
        (f.position, f.before, f.leaves) for f in again.forks
    ]


@pytest.mark.parametrize("options", [{"prior": -1}, {"least": 0.5}, {"weights": np.ones(3)}])
def test_senseless_options_are_refused(options):
    tree = exact.flat_tree(np.random.default_rng(6), 8)
    with pytest.raises(AnalysisError):
        decisions(table([tree]), **options)


def test_actions_that_are_no_tokens_are_refused():
    tree = Tree("latent", np.zeros((2, 3), np.float32))
    exact.leaf(tree, 0, np.ones((2, 3), np.float32), 1.0)
    with pytest.raises(AnalysisError, match="not token ids"):
        decisions(table([tree]))


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 6), (3, 3), (8, 8), (10, 30)])
def test_two_equal_rates_are_rarely_told_apart(n, m):
    """Exact, over all outcomes: with two a side never, else in about one of twenty cases at the worst rate."""
    apart = [
        sum(
            stats.binom.pmf(a, n, p) * stats.binom.pmf(b, m, p)
            for a in range(n + 1)
            for b in range(m + 1)
            if (r := difference(a / n, n, b / m, m)).low > 0 or r.high < 0
        )
        for p in np.linspace(0.05, 0.95, 10)
    ]
    assert max(apart) <= (0 if n == m == 2 else 0.056)


def test_merging_keeps_every_leaf_and_every_token():
    rng = np.random.default_rng(7)
    tree = exact.flat_tree(rng, 50)
    for leaf in tree.leaves()[:5]:
        exact.leaf(tree, tree.cut(leaf, 1), rng.integers(0, 4, 4).tolist(), 0.0)
    view = table([tree])
    m = merged(view, [0])
    actions, at = view.ragged("actions")
    texts = [actions[at[r] + o : at[r] + o + n].tolist() for r, o, n in zip(m.row, m.offset, m.length, strict=True)]
    leaves = m.source_leaf().tolist()
    assert sorted(leaves) == sorted(view.leaf.tolist())
    for row, leaf in zip(m.shape.leaf.tolist(), leaves, strict=True):
        whole = [t for span in m.shape.path(row) for t in texts[span]]
        assert whole == tree.prefix(view.nodes[leaf]).tolist()
    for span in range(len(m.shape)):
        firsts = [texts[c][0] for c in m.shape.children(span) if m.length[c]]
        assert len(firsts) == len(set(firsts))
