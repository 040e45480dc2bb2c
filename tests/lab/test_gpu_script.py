"""`make gpu` at toy sizes on a processor, with nothing installed beyond what it says it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = ("tyro", "rich", "plotly", "psutil", "peft", "trl", "datasets", "aiohttp", "kernels", "tensorboard")
START = """
import runpy, sys
for name in {optional!r}:
    sys.modules[name] = None
sys.argv = ["gpu", *{arguments!r}]
runpy.run_path({script!r}, run_name="__main__")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = START.format(optional=OPTIONAL, arguments=arguments, script=str(ROOT / "benchmarks" / "gpu"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=env)


def test_the_whole_script_runs_at_toy_sizes_and_fills_its_page(tmp_path: Path) -> None:
    out, page = tmp_path / "gpu.json", tmp_path / "gpu.md"
    done = run("--toy", "--device", "cpu", "--json", str(out), "--page", str(page))
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    assert data["left_out"] == []
    rows = data["rows"]
    told = {row["what"]: row for part in ("numerics", "sampled") for row in rows[part]}
    assert len(told) == 10
    assert all(row["agrees"] for row in told.values())
    assert told["packed blocks bfloat16"]["logp_off"] > 1e-4, "half precision was not used"
    assert told["packed blocks float32 in pieces of 40"]["gradient_cosine"] == pytest.approx(1)
    assert told["engine float32"]["same_tokens"] == 1
    assert {len(rows[part]) for part in ("packed", "engine", "steps")} == {4, 2}
    for row in rows["packed"]:
        assert row["unique"] < row["flat"]
        assert 0 < row["share"] < 1
    assert rows["learning"][0]["what"] == "nano on arithmetic in float32, 2 steps of GRPO"
    text = page.read_text()
    for part in ("Does the card compute", "Sampling", "Training on trees", "Whole steps", "Learning"):
        assert f"## {part}" in text
    assert "Left out" not in text


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_without_a_card_it_says_so(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = run("--json", str(out))
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        "error: there is no GPU here; run it where one is, or with --toy to see that it runs"
    ]
    assert not out.exists()


def test_the_page_in_the_documentation_is_what_the_script_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    from page import page  # pyright: ignore

    measured = ROOT / "benchmarks" / "baselines" / "gpu.json"
    data = json.loads(measured.read_text()) if measured.is_file() else None
    assert (ROOT / "docs" / "measured" / "gpu.md").read_text() == page(data)
