"""Resampling on correct keeps classes in proportion, the cleanest right ones, and gives the others a reason."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolltree.tree import Tree
from rolltree.tree.forest import assert_conserved
from rolltree_papers.grpo_roc import Cleanest, flaws, quotas

PATIENT = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(st.integers(0, 40), st.integers(0, 40), st.integers(4, 20))
@PATIENT
def test_quotas_fill_what_is_kept_and_never_exceed_what_there_is(right, wrong, keep):
    r, w = quotas(right, wrong, keep)
    assert 0 <= r <= right
    assert 0 <= w <= wrong
    assert r + w <= max(keep, 0) or right + wrong <= keep
    if right + wrong >= keep and min(right, wrong) >= 2 and right + wrong > keep:
        assert r + w == keep
        assert min(r, w) >= 2


@pytest.mark.parametrize(
    ("right", "wrong", "kept"), [(13, 19, (6, 10)), (2, 30, (2, 14)), (31, 1, (15, 1)), (3, 4, (3, 4))]
)
def test_quotas_of_the_released_code(right, wrong, kept):
    assert quotas(right, wrong, 16) == kept


def test_the_cleanest_right_ones_stay():
    tree = Tree("t", [0])
    for k in range(12):
        tree.extend(0, [1], status="done", scores={"reward": float(k < 8), "format": 1 - k / 10})
    Cleanest(6)(tree, 1)
    kept = [leaf for leaf in tree.leaves() if not leaf.usage]
    assert [leaf.scores["format"] for leaf in kept if leaf.scores["reward"]] == [1.0, 0.9, 0.8, 0.7]
    assert sum(leaf.scores["reward"] == 0 for leaf in kept) == 2
    assert assert_conserved([tree], settled=True).kept == 6


def test_tool_errors_count_and_silence_where_others_called_is_half_a_flaw():
    tree = Tree("t", [0])
    for failed in (True, False):
        call = tree.extend(0, [1], status="done")
        answer = tree.extend(call, [2], role="env", status="done", notes={"failed": True} if failed else {})
        tree.extend(answer, [3], status="done", scores={"reward": 1.0})
    tree.extend(0, [4], status="done", scores={"reward": 1.0})
    assert [flaws(tree, leaf) for leaf in tree.leaves()] == [1.0, 0.0, 0.5]
