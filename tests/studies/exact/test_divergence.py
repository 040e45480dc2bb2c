"""The KL lab: what theory says about each estimator's gradient must come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.exact.divergence import main, table


def test_on_policy_k2_is_unbiased_k1_is_no_penalty_and_the_ratio_repairs_k1_and_k3() -> None:
    rows = dict(table(0.5, 0.0))
    for name in ("k2", "k1 × r", "k3 × r"):
        assert max(m.bias for m in rows[name]) < 1e-9, name
    assert all(m.bias == pytest.approx(1.0) for m in rows["k1"])  # its mean gradient is zero
    assert min(m.bias for m in rows["k3"]) > 1e-3
    for name in ("k1", "k3"):
        assert all(m.value == pytest.approx(1.0) for m in rows[name]), name


def test_off_policy_only_the_ratio_is_unbiased_and_only_for_k1_and_k3() -> None:
    rows = dict(table(0.5, 0.5))
    for name in ("k1 × r", "k3 × r"):
        assert max(m.bias for m in rows[name]) < 1e-9, name
    for name in ("k1", "k2", "k3", "k2 × r"):
        assert min(m.bias for m in rows[name]) > 1e-3, name


def test_k3_is_quieter_than_k1_under_the_ratio() -> None:
    rows = dict(table(0.1, 0.0))
    assert all(a.deviation < b.deviation for a, b in zip(rows["k3 × r"], rows["k1 × r"], strict=True))


def test_the_page_is_written(tmp_path: Path) -> None:
    main(tmp_path, say=lambda _: None)
    assert (tmp_path / "divergence.md").read_text().count("| k3 × r |") == 6
