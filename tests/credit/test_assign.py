from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.advantage import CreditError
from rolltree.credit.fold import assign
from rolltree.testing.forests import episodes, flat
from rolltree.tree.table import table


def test_assign_writes_what_fold_says():
    tree = flat([1, 0], [1, 3])
    done = assign([tree], "dr_grpo", averaging="sequence")
    np.testing.assert_allclose(tree[1].gain, [0.25])
    np.testing.assert_allclose(tree[2].loss, np.full(3, -0.5 / 6), rtol=1e-6)
    assert done.folded.weight.sum() == pytest.approx(1)


def test_assign_checks_needs_before_it_writes():
    tree = flat([1, 0])
    with pytest.raises(CreditError, match="state_key"):
        assign([tree], "gigpo")
    assert tree[1].gain is None


def test_a_table_with_other_rewards_leaves_the_first_as_it_was():
    tab = table(episodes(np.random.default_rng(0)))
    before = tab.reward.copy()
    other = tab.with_reward(before + 1)
    np.testing.assert_array_equal(tab.reward, before)
    np.testing.assert_array_equal(other.reward, before + 1)
    assert other.live is tab.live or (other.live == tab.live).all()
