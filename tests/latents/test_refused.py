"""What serves language models alone says so of a model of latents, before anything is started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.engine.choose import choose_engine
from rolltree.engine.protocol import EngineError
from rolltree.errors import ModelError
from rolltree.gateway.gateway import Gateway
from rolltree.generate.branches import Branches
from rolltree.tree.store.parquet import save
from tests.latents.tiny import grown, tiny_engine, tiny_loaded

TRAIN = ["train", "branch_grpo", "--task", "digits", "--steps", "1", "--prompts", "2", "--eval-every", "0"]


@pytest.mark.papers("branch_grpo", "dts")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*TRAIN, "--ranks", "2"], "share the blocks of a language model"),
        ([*TRAIN, "--lora", "4"], "adapters are for language models"),
        ([*TRAIN, "--speculate", "suffix"], "digits writes latents"),
        ([*TRAIN, "--engine", "vllm"], "the engine vllm is for language models, and digits writes latents"),
        ([*TRAIN, "--engine", "http://127.0.0.1:1"], "for language models, and digits writes latents"),
        ([*TRAIN, "--cluster", "local:1"], "pools of engines are for language models, and digits writes latents"),
        (["rollout", "dts", "--task", "digits", "--cluster", "local:1"], "pools of engines are for language models"),
        (["serve", "--policy", "digits", "--port", "0"], "the gateway reads tokens, and LatentEngine writes latents"),
    ],
    ids=["ranks", "lora", "speculation", "vllm", "server", "pool", "pool-rollout", "gateway"],
)
def test_one_sentence_before_work_starts(
    words: Sequence[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    more = ["--out", str(out)] if words[0] == "train" else []
    assert main([*words, *more]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert said in told[-1]
    assert not list((out / "checkpoints").glob("*")) if out.exists() else True


def test_the_same_in_python() -> None:
    loaded = tiny_loaded()
    for name in ("vllm", "vllm-ipc", "vllm-nccl", "http://127.0.0.1:1"):
        with pytest.raises(ModelError, match="tiny writes latents; sample it with --engine local"):
            asyncio.run(choose_engine(name, loaded))
    with pytest.raises(EngineError, match="the gateway reads tokens"):
        Gateway(tiny_engine())


def test_labels_of_steps_are_of_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(grown(Branches((1,), first=2)), tmp_path / "f", states="drop")
    words = ["labels", str(tmp_path / "f"), "--kind", "prm", "--model", "digits", "--out", str(tmp_path / "rows.jsonl")]
    assert main(words) == 2
    assert "digits writes latents; give a run of a language model" in capsys.readouterr().err


@pytest.mark.papers("branch_grpo", "flow_grpo")
@pytest.mark.slow
def test_a_comparison_of_images_ends_with_a_report(tmp_path: Path) -> None:
    words = ["compare", "branch_grpo", "flow_grpo", "--task", "digits", "--budget", "400", "--seeds", "1"]
    small = ["--eval-items", "2", "--eval-samples", "1", "--set", "train.prompts=2"]
    assert main([*words, *small, "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]) == 0
    assert (tmp_path / "out" / "report.html").is_file()
    told = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert told["conditions"]["model"] == "digits"


@pytest.mark.papers("dts")
def test_solve_takes_the_tasks_own_model(tmp_path: Path) -> None:
    out = tmp_path / "a"
    words = ["solve", "dts", "--task", "digits", "--items", "2", "--rollouts", "4", "--out", str(out)]
    assert main(words) == 0
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert all("image" in line["answer"] for line in lines)
    assert json.loads((out / "report.json").read_text())["any_right"] >= 0
