"""What the small studies of latents measure, at a size of seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from studies.latents import blocks, guidance, paired
from studies.latents.learn import ARMS, PROMPTS, equal_updates, table


def test_an_order_by_steps_drifts_less_and_is_the_same_where_nothing_is_biased() -> None:
    for by in blocks.ORDERS:
        still = blocks.denoised(by, 0.0)
        assert abs(float(still.mean())) < 0.01
    ends = {by: blocks.denoised(by, 0.05)[[0, 20]].mean(1) for by in blocks.ORDERS}
    assert ends["blocks"][1] > 5 * ends["blocks"][0]
    assert ends["steps"][1] < 0.5 * ends["blocks"][1]


def test_block_outer_draws_the_chain_itself() -> None:
    x = blocks.denoised("blocks", 0.0)
    assert float(x.std()) == pytest.approx(1.0, abs=0.01)
    assert float(np.corrcoef(x[9], x[10])[0, 1]) == pytest.approx(blocks.RHO, abs=0.01)


def test_the_paired_objective_teaches_without_densities_and_the_copy_chooses_extremes() -> None:
    study = paired.PairedStudy(updates=12, group=4, explore=8)
    before, after, calls, coarse = paired.run(study, 0, explore=True)
    assert after > before + 0.02
    assert (calls, coarse) == (4 * (10 + 4 * 4), 8 * 10)
    assert paired.extremes(torch.tensor([0.1, 0.9, 0.5, 0.0, 0.7]), 3).tolist() == [1, 4, 3]


def test_guidance_costs_no_call_and_raises_the_outcome() -> None:
    rows = [line.split("|")[1:-1] for line in guidance.digits(2, (0.0, 1.0)).splitlines()[2:]]
    told = {float(row[0]): (int(row[1]), float(row[2].split("±")[0])) for row in rows}
    assert {calls for calls, _ in told.values()} == {10}
    assert told[1.0][1] > told[0.0][1] + 0.2


def test_curves_are_compared_at_equal_calls_and_at_equal_updates(tmp_path: Path) -> None:
    def curve(arm: str, gain: float) -> dict[str, object]:
        one = ARMS[arm]
        at = [one.steps * k // 6 for k in range(7)]
        return {"arm": arm, "seed": 0, "curve": [[u * one.calls * PROMPTS, 0.5, gain * u] for u in at]}

    lines = [json.loads(json.dumps(curve(arm, 0.01))) for arm in ("flat", "branch", "late")]
    calls, updates = table(lines).splitlines()[2:], equal_updates(lines).splitlines()[2:]
    assert [row.split("|")[5].strip() for row in calls] == ["0.360", "0.600", "1.200"]
    # The same gain an update is the same outcome at equal updates, whatever an update costs.
    assert [row.split("|")[3].strip() for row in updates] == ["0.300"] * 3
    assert [row.split("|")[5].strip() for row in updates] == ["not reached", "0.600", "0.600"]
