"""The comparison of precisions: what its page says of runs, and that the check sees the mismatch where it is."""

from studies.precision import ARMS, PrecisionRow, jet_rl, page


def test_the_same_rounding_on_both_sides_leaves_no_mismatch():
    found = jet_rl(3)
    assert found.value < 1e-5
    assert found.baseline > 1e-3
    assert found.acted["weights that rounding moves"] > 0


def test_the_page_counts_collapses_and_pairs_by_seed():
    rows = [
        PrecisionRow(arm.label, seed, 0.02, 0.3, 0.4 + 0.01 * seed - 0.1 * k, 0.31 - 0.05 * max(0, k - 1), 0.0)
        for seed in range(3)
        for k, arm in enumerate(ARMS)
    ]
    lines = [line for line in page(rows, 1000).splitlines() if line.startswith("| int4")]
    assert [line.split("|")[4].strip() for line in lines] == ["0 of 3", "0 of 3", "3 of 3", "3 of 3"]
    assert "-30.0 (-30.0 to -30.0)" in lines[0]
