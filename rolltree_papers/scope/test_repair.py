"""What `scope` promises beside what all of its kind do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rolltree.tree.steps import solved
from rolltree_papers.scope.study import REPAIR, STEPS, Reader, grown, trained, varied


def test_a_repaired_rollout_is_the_policys_prefix_and_the_correction_and_takes_the_failed_ones_place() -> None:
    forest = grown(REPAIR, 3, 8)
    repaired = 0
    for tree in forest:
        live = [leaf for leaf in tree.leaves() if leaf.status == "done"]
        assert len(live) == 8, "the group keeps its size"
        for leaf in live:
            if not leaf.forced:
                continue
            repaired += 1
            above = [n for n in tree.path(leaf)[1:-1] if len(n)]
            assert above, "the first step was good"
            assert all(n.actor == "policy" and not n.forced for n in above)
            assert leaf.logp is not None
            assert leaf.sampling_logprob is not None
            assert np.isnan(leaf.sampling_logprob).all()
            assert solved(leaf)
    assert repaired > 5


def test_groups_get_both_kinds_and_a_judge_that_errs_gives_less() -> None:
    none, good, bad = (varied(grown(s, 0, 40)) for s in (
        replace(REPAIR, threshold=-1.0), REPAIR, replace(REPAIR, judge=Reader(0.4))))  # fmt: skip
    assert good > none + 0.3
    assert none < bad < good


def test_both_arms_have_the_correctors_tokens_and_only_repairs_keep_own_steps() -> None:
    ours = trained(replace(REPAIR, judge=Reader(0.1)), 0, updates=4)
    theirs = trained(REPAIR, 0, whole=ours.tokens, updates=4)
    assert 0 <= sum(ours.tokens) - sum(theirs.tokens) < 2 * STEPS
    assert ours.kept > theirs.kept == 0
    assert trained(REPAIR, 0, whole=(0,) * 4, updates=4).tokens == (0,) * 4
