"""Training against vLLM from the command line: what the engine reported and what the trainer recomputes agree."""

import json

import pytest

from rolltree.cli import main

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("more", [[], ["--lora", "4"]], ids=["all weights", "adapters"])
def test_rolltree_train_with_the_vllm_engine(more, tmp_path):
    command = ["train", "grpo", "--engine", "vllm", "--task", "countdown", "--steps", "2", "--prompts", "4"]
    command += ["--eval-every", "0", "--doctor", "0", "--json", "--out", str(tmp_path / "run"), *more]
    assert main(command) == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    assert len(trained) == 2
    assert all(line["policy/mismatch_max"] < 1e-3 for line in trained)
