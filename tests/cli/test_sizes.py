"""Numbers that no memory holds: one sentence, before work starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolltree.cli import main

MANY = "1000000000"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train grpo --group", "group=1000000000"),
        ("train treepo --leaves", "leaves=1000000000"),
        ("train dars --group", "group=1000000000"),
        ("train grpo --control dars --group", "group=1000000000"),
        ("train grpo --prompts", "prompts=1000000000"),
        ("train grpo --scheduler areal --prompts", "prompts=1000000000"),
        ("train grpo --eval-items", "eval_items=1000000000"),
        ("train grpo --eval-samples", "eval_samples=1000000000"),
        ("train grpo --threads", "--threads 1000000000"),
        ("rollout grpo --group", "group=1000000000"),
        ("rollout grpo --items", "--items 1000000000"),
        ("tasks countdown --items", "--items 1000000000"),
    ],
)
def test_one_number_is_too_many(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words.split(), MANY]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "fit" in said
    assert not list(tmp_path.iterdir())


def test_a_product_is_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rollout", "grpo", "--items", "100000", "--group", "100000"]) == 2
    assert "100000 prompts with 100000 rollouts each" in capsys.readouterr().err
