"""The comparison of precisions: what its page says of runs, and that the check sees the mismatch where it is."""

from studies.precision import ARMS, BOTH, ENGINE_ALONE, PrecisionRow, mismatch, moved, page


def test_the_same_rounding_on_both_sides_leaves_no_mismatch():
    assert mismatch(3, "int4") < 1e-5
    assert mismatch(3, "full") > 1e-3


def test_the_trainer_rounds_in_one_arm_alone():
    assert moved(BOTH) > moved(ENGINE_ALONE) == 0


def test_the_page_counts_collapses_and_pairs_by_seed():
    rows = [
        PrecisionRow(arm.label, seed, 0.02, 0.3, 0.4 + 0.01 * seed - 0.1 * k, 0.31 - 0.05 * max(0, k - 1), 0.0)
        for seed in range(3)
        for k, arm in enumerate(ARMS)
    ]
    lines = [line for line in page(rows, 1000).splitlines() if line.startswith("| int4")]
    assert [line.split("|")[4].strip() for line in lines] == ["0 of 3", "0 of 3", "3 of 3", "3 of 3"]
    assert "-30.0 (-30.0 to -30.0)" in lines[0]
