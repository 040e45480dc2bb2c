"""ROSE's calibration by length, by hand and against every leaf's own copy."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.testing.forests import grown
from rolltree.tree import Tree
from rolltree.tree.table import table
from rolltree_papers.rose import surplus


def forked() -> Tree:
    """Root → a (2 actions) with leaves of 2 (right), 6 (right) and 4 (wrong); and b: one right leaf of 8 in all."""
    tree = Tree("t", [0])
    a = tree.extend(0, [1, 1], status="done")
    for size, reward in ((2, 1.0), (6, 1.0), (4, 0.0)):
        tree.extend(a, [2] * size, status="done", scores={"reward": reward})
    b = tree.extend(0, [3] * 4, status="done")
    tree.extend(b, [4] * 4, status="done", scores={"reward": 1.0})
    return tree


def test_by_hand():
    view = table([forked()])
    excess, shortest = surplus(view, 1.0)
    # The shortest right path has 4 actions; the second leaves it after 2 (2 of 6 remain), the last at once (4 of 8).
    np.testing.assert_allclose(excess, [0, 1 - 2 / 6, 0, 1 - 4 / 8])
    assert shortest.tolist() == [True, True, True, False, False, False, False]
    plain = load_credit("node_delta")(view).node
    for alpha in (0.5, 1.0, 2.0):
        shaped = load_credit("length_calibrated", alpha=alpha)(view).node
        wanted = plain.copy()
        wanted[3] -= abs(plain[3]) * (1 - (2 / 6) ** alpha)
        wanted[5:] -= np.abs(plain[5:]) * (1 - (4 / 8) ** alpha)
        np.testing.assert_allclose(shaped, wanted)
        assert (np.sign(shaped) == np.sign(plain)).all()


@pytest.mark.parametrize("seed", range(6))
def test_shared_runs_get_what_every_leafs_own_copy_would(seed: int):
    """Folding the mean of the leaves' factors equals summing each leaf's calibrated advantage, where weights agree."""
    rng = np.random.default_rng(seed)
    view = table([grown([[[], [], []], [[[], []], []], []], rng, id=f"t{i}") for i in range(4)])
    view = view.with_reward((rng.random(len(view.leaf)) < 0.6).astype(np.float64))
    weights = leaf_weights(view, "fixed", fixed_length=50)
    base = load_credit("node_delta")(view).node
    folded = fold(view, load_credit("length_calibrated", alpha=2.0)(view), weights)
    excess, shortest = surplus(view, 2.0)
    gain, loss = np.zeros(view.actions), np.zeros(view.actions)
    for row, leaf in zip(*view.pairs(), strict=True):
        a = base[row] - abs(base[row]) * (0.0 if shortest[row] else excess[leaf])
        at = slice(view.start[row], view.start[row] + view.length[row])
        gain[at] += weights[leaf] * max(a, 0.0) * view.loss_mask[at]
        loss[at] += weights[leaf] * min(a, 0.0) * view.loss_mask[at]
    np.testing.assert_allclose(folded.gain, gain, atol=1e-12)
    np.testing.assert_allclose(folded.loss, loss, atol=1e-12)


def test_nothing_changes_without_two_right_answers():
    tree = forked()
    for leaf in tree.leaves()[1:]:
        leaf.scores["reward"] = 0.0
    view = table([tree])
    np.testing.assert_array_equal(load_credit("length_calibrated")(view).node, load_credit("node_delta")(view).node)


def test_other_bases_and_exponents_are_refused():
    view = table([forked()])
    with pytest.raises(CreditError, match="'grpo' is not one advantage per run"):
        load_credit("length_calibrated", base="grpo")(view)
    with pytest.raises(CreditError, match="alpha 0"):
        load_credit("length_calibrated", alpha=0.0)(view)
    assert isinstance(load_credit("length_calibrated")(view), Advantage)
