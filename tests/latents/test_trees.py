"""Branching trees of latents: their shape, their credit, their search; the same files serve text."""

from __future__ import annotations

import asyncio
import math
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.credit.advantage import Credit
from rolltree.credit.depth import BestLeaf, PrunedBranches, likely
from rolltree.credit.fold import Folded, fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.engine.protocol import Sampling
from rolltree.generate.branches import BranchError, Branches, Heat
from rolltree.generate.runner import grow
from rolltree.latents.engine import LatentEngine
from rolltree.policy.load import load_model
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.table import Table, table
from tests.latents.tiny import grown


def test_branches_share_what_stands_before_a_fork() -> None:
    forest = grown(Branches((1, 3), 2, 2))
    tree = next(iter(forest))
    leaves = tree.leaves()
    assert len(leaves) == 8
    assert all(len(tree.prefix(leaf)) == 1 + 7 for leaf in leaves)
    assert all("reward" in leaf.scores for leaf in leaves)
    # 2 first latents; 4 paths of 2 steps; 8 paths of 4 steps.
    assert sum(len(n) for n in tree if n.role == "policy") == 2 + 4 * 2 + 8 * 4
    assert len({tree.prefix(leaf)[1].tobytes() for leaf in leaves}) == 2
    assert len({tree.prefix(leaf)[7].tobytes() for leaf in leaves}) == 8


def test_noise_is_on_in_a_window_alone_and_grows() -> None:
    tree = next(iter(grown(Branches((2, 3), 2, 1, Heat(0.5, (2, 2), 1.0)))))
    path = tree.prefix(tree.leaves()[0])
    assert [round(float(a[64]), 3) for a in path[1:]] == [1.0, 0.0, 0.5, 0.75, 0.0, 0.0, 0.0]
    view = table([tree])
    assert int(view.loss_mask.sum()) == 2 + 4
    assert len(tree.leaves()) == 4


def test_noise_that_grows_with_depth_takes_leaves_further_apart_at_equal_calls() -> None:
    """What Dynamic-TreeRPO's noise by depth is for."""

    def apart(growth: float) -> tuple[float, int]:
        engine = LatentEngine(load_model("digits").model)
        forest = grown(Branches((2, 3, 4), 2, 1, Heat(0.7, (2, 3), growth)), 6, engine=engine)
        out: list[float] = []
        for tree in forest:
            ends = np.array([tree.prefix(leaf)[-1][:64] for leaf in tree.leaves()])
            out.append(float(np.linalg.norm(ends[:, None] - ends[None], axis=-1).mean()))
        return float(np.mean(out)), engine.calls

    (even, calls), (growing, same) = apart(0.0), apart(1.5)
    assert calls == same
    assert growing > 1.2 * even


def test_a_fork_outside_the_window_is_refused_before_the_first_step() -> None:
    with pytest.raises(BranchError, match="temperature is 0"):
        Branches((4,), 2, 1, Heat(1.0, (1, 2))).check(None, None)  # pyright: ignore[reportArgumentType]


def test_branches_grow_text_as_well() -> None:
    asked = islice(SpellTask().items("train"), 4)
    forest = asyncio.run(grow(Branches((1,), 3, 2), tiny_engine(), SpellTask(), asked))
    assert all(leaf.status == "done" for _, leaf in forest.leaves())
    assert any(len(n.children) == 3 for tree in forest for n in tree)


def balanced(rewards: list[float], ways: int = 2) -> Tree:
    """A balanced tree of latents with these outcomes."""
    depth = round(math.log(len(rewards), ways))
    tree = Tree("t", [0])
    live = [tree.root]
    for _ in range(depth):
        live = [tree.extend(n, np.ones((2, 3), np.float32), logp=np.full(2, -1.0, np.float32))
                for n in live for _ in range(ways)]  # fmt: skip
    for node, reward in zip(live, rewards, strict=True):
        node.scores["reward"] = reward
        tree.close(node, "done", "eos")
    for node in tree:
        node.status = "done"
    return tree


def _folded(view: Table, credit: Credit) -> Folded:
    return fold(view, credit(view), leaf_weights(view, "token"), "once")


@given(st.lists(st.floats(0, 1), min_size=8, max_size=8))
@settings(max_examples=40, deadline=None)
def test_leaf_deviation_with_mean_backup_is_terminal_advantage_averaged_over_shared_edges(rewards: list[float]) -> None:
    if np.std(rewards) < 1e-3:
        return
    view = table([balanced(rewards)])
    by_depth = _folded(view, load_credit("depthwise", scale="leaf_std", eps=1e-12, clip=0.0))
    terminal = _folded(view, load_credit("shared_mean", base=load_credit("grpo", eps=1e-12)))
    assert np.allclose(by_depth.gain + by_depth.loss, terminal.gain + terminal.loss, atol=1e-6)


def test_two_branches_alone_get_the_sign_of_their_difference() -> None:
    view = table([balanced([0.0, 0.0, 0.0, 1.0])])
    told = load_credit("depthwise")(view).action
    assert told is not None
    first = told[view.start[1]]
    assert abs(first) == pytest.approx(0.5**0.5, rel=1e-4)
    assert load_credit("depthwise", clip=0.1)(view).action.max() <= 0.1  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(("density", "dimensions"), [("mean", 64), ("sum", 1)])
def test_likely_children_weigh_by_their_log_density_per_dimension(density: str, dimensions: int) -> None:
    tree = Tree("t", [0])
    logp, rewards = np.array([-80.0, -96.0]), np.array([0.0, 1.0])
    for density_of, reward in zip(logp, rewards, strict=True):
        tree.extend(
            0, np.zeros((1, 4, 16), np.float32), status="done", scores={"reward": reward},
            logp=np.array([density_of], np.float32),
        )  # fmt: skip
    weight = np.exp((logp - logp.max()) / dimensions)
    found = likely(table([tree]), table([tree]).reward, density)  # pyright: ignore[reportArgumentType]
    assert found[0] == pytest.approx(float(weight @ rewards / weight.sum()))
    assert load_credit("depthwise", backup="likely").density == "mean"  # pyright: ignore[reportAttributeAccessIssue]


def test_pruning_takes_from_the_gradient_alone() -> None:
    view = table([balanced([0.0, 0.3, 0.6, 1.0])])
    whole = _folded(view, load_credit("depthwise"))
    depth = _folded(view, PrunedBranches(load_credit("depthwise"), first=0, count=2))
    place = np.repeat(view.down(view.length.astype(float)) - view.length, view.length)
    shallow = place < 3
    assert (depth.gain + depth.loss)[shallow & (whole.weight > 0)].tolist() == [0.0] * 4
    assert np.array_equal((depth.gain + depth.loss)[~shallow], (whole.gain + whole.loss)[~shallow])
    assert np.array_equal(depth.weight, whole.weight)
    best = _folded(view, PrunedBranches(load_credit("depthwise"), width="best"))
    kept = [(best.gain + best.loss)[view.start[row]] != 0 for row in view.leaf]
    assert kept == [False, True, False, True]
    ends = _folded(view, PrunedBranches(load_credit("depthwise"), width="extremes"))
    assert [(ends.gain + ends.loss)[view.start[row]] != 0 for row in view.leaf] == [True, False, False, True]


def test_the_best_leaf_is_imitated_only_where_it_is_good() -> None:
    good, bad = table([balanced([0.0, 0.2, 0.1, 0.9])]), table([balanced([0.0, 0.2, 0.1, 0.4])])
    for view, more in ((good, 3 * 2), (bad, 0)):
        plain, pulled = load_credit("depthwise")(view).action, BestLeaf(load_credit("depthwise"), 0.1, 0.5)(view).action
        assert plain is not None
        assert pulled is not None
        changed = np.flatnonzero(~np.isclose(plain, pulled))
        assert len(changed) == (more - 2 + 1 if more else 0)


def test_every_place_and_way_adds_up() -> None:
    for places, ways, first in product([(), (1,), (1, 2)], [1, 2, 3], [1, 2]):
        assert Branches(places, ways, first).leaves == first * ways ** len(places)
    assert Sampling().temperature == 1.0
