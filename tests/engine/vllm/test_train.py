"""Training against vLLM from the command line: what the engine reported and what the trainer recomputes agree."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.vllm


def test_rolltree_train_with_the_vllm_engine(tmp_path):
    command = [sys.executable, "-m", "rolltree", "train", "grpo", "--engine", "vllm", "--task", "countdown"]
    command += ["--steps", "2", "--prompts", "4", "--eval-every", "0", "--doctor", "0", "--json"]
    command += ["--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    assert len(trained) == 2
    assert all(line["gap_max"] < 1e-3 for line in trained)
