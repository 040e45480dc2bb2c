"""Log-ratio views against loops over each path."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolltree.objective.against import ObjectiveError
from rolltree.objective.ratio import VIEWS, behaviour, on_paths, pad, ratio, unpad
from rolltree.testing.objective import random_pair


def view_by_hand(values: list[float], known: list[bool], view: str) -> list[float]:
    seen = [v for v, k in zip(values, known, strict=True) if k]
    out = []
    for t in range(len(values)):
        before = [v for v, k in zip(values[:t], known[:t], strict=True) if k]
        upto = [v for v, k in zip(values[: t + 1], known[: t + 1], strict=True) if k]
        out.append(
            {
                "token": values[t],
                "zero": 0.0,
                "sequence_sum": sum(seen),
                "sequence_mean": sum(seen) / len(seen) if seen else 0.0,
                "prefix_sum": sum(upto),
                "prefix_min": min(before, default=0.0),
                "prefix_min_inclusive": min(upto, default=0.0),
            }[view]
        )
    return out


@given(seed=st.integers(0, 10_000), missing=st.sampled_from([0.0, 0.4, 1.0]), view=st.sampled_from(VIEWS))
def test_every_view_equals_a_loop(seed: int, missing: float, view) -> None:
    batch = random_pair(seed, missing=missing).folded
    paths = batch.paths
    centre, known = behaviour(batch.old, batch.sampled)
    delta = (batch.logp - centre).detach()
    got = on_paths(delta, known, paths, view)
    for leaf in range(paths.count):
        rows = paths.path == leaf
        actions = paths.index[rows]
        expected = view_by_hand(delta[actions].tolist(), known[actions].tolist(), view)
        assert got[rows].tolist() == pytest.approx(expected, abs=1e-12)


@given(seed=st.integers(0, 10_000))
def test_a_prefix_view_is_the_same_on_every_path_through_an_action(seed: int) -> None:
    batch = random_pair(seed).folded
    delta = (batch.logp - batch.old).detach()
    for view in ("prefix_sum", "prefix_min", "prefix_min_inclusive"):
        got = on_paths(delta, None, batch.paths, view)
        one = torch.zeros_like(delta).index_put((batch.paths.index,), got)
        torch.testing.assert_close(one[batch.paths.index], got)


@given(seed=st.integers(0, 10_000))
def test_pad_and_unpad_are_inverse(seed: int) -> None:
    paths = random_pair(seed).folded.paths
    assert torch.equal(unpad(pad(paths.advantage, paths, -9.0), paths), paths.advantage)


def test_ratios_are_bounded_and_an_unknown_view_is_refused() -> None:
    extreme = ratio(torch.tensor([-1e9, 0.0, 1e9]))
    assert extreme.tolist() == pytest.approx([2.0611536e-9, 1.0, 4.8516520e8])
    batch = random_pair(0).folded
    with pytest.raises(ObjectiveError, match="choose one of token"):
        on_paths(batch.old, None, batch.paths, "prefix")
