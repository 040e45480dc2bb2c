"""A place that takes no more: the checkpoint under way is gone, those before it stay, and the system's word is kept."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import rolltree
from rolltree.cli import main
from rolltree.training.checkpoint import check_seal, checkpoints, save_checkpoint
from rolltree.training.config import TrainError
from rolltree.training.loop import RunEvent
from tests.train.toy import KNOBS, Early, timeless, tiny_policy


@contextmanager
def files_of(most: int) -> Generator[None]:
    """No file may grow beyond so many bytes, which a write hears as it hears of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("state", [0, 1 << 20])
def test_a_checkpoint_that_does_not_fit_is_an_error_of_the_system_and_leaves_the_last_one(
    tmp_path: Path, state: int
) -> None:
    policy = tiny_policy()

    def save(step: int) -> None:
        about: dict[str, Any] = {
            "model": policy.model,
            "tokenizer": policy.codec.tokenizer,
            "state": {"x": "y" * state},
        }
        save_checkpoint(tmp_path, step, keep=2, note="", **about)

    save(1)
    whole = max(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file())
    with files_of(whole - 1), pytest.raises(OSError, match="step-000002") as said:
        save(2)
    assert said.value.filename == str(tmp_path / "step-000002")
    assert said.value.strerror
    (left,) = checkpoints(tmp_path)
    check_seal(left.path)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000001"]


def test_a_full_disk_is_told_as_one_wherever_in_a_checkpoint_it_fills(tmp_path: Path) -> None:
    """The model's library, the tokenizer's, torch and we write in turn, and each says it in its own way."""
    policy, moments = tiny_policy(), {"momentum": torch.zeros(1 << 18)}
    about: dict[str, Any] = {"model": policy.model, "tokenizer": policy.codec.tokenizer, "state": moments}
    save_checkpoint(tmp_path, 1, keep=2, note="a run", **about)
    sizes = {f.name: f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()}
    assert max(sizes, key=lambda name: sizes[name]) == "training.pt"
    points = {0, *(at for size in sizes.values() for at in (size // 2, size - 1)), 1 << 16, 1 << 18}
    for most in sorted(points - {max(sizes.values())}):
        with files_of(most), pytest.raises(OSError, match="step-000002") as said:
            save_checkpoint(tmp_path, 2, keep=2, note="a run", **about)
        assert (said.value.errno, said.value.filename) == (errno.EFBIG, str(tmp_path / "step-000002")), most
    assert [c.path.name for c in checkpoints(tmp_path)] == ["step-000001"]
    check_seal(tmp_path / "step-000001")


@pytest.mark.parametrize("first", [1, 2])
def test_a_run_whose_checkpoint_finds_no_place_says_where_why_and_how_it_goes_on(tmp_path: Path, first: int) -> None:
    torch.set_num_threads(1)
    knobs: dict[str, Any] = {**KNOBS, "steps": 4, "eval_every": 0, "checkpoint_every": 1}
    out, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fills(live: RunEvent) -> None:
        if live.kind == "trained" and live.step == first:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))

    try:
        with pytest.raises(TrainError) as said:
            rolltree.train("grpo", tiny_policy(), Early(), out=out, listen=fills, **knobs)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    text = str(said.value)
    assert "\n" not in text
    assert f"{out / 'checkpoints' / f'step-{first:06d}'}: File too large" in text
    assert ("goes on from step-000001" if first == 2 else "begins again") in text
    ended = rolltree.train("grpo", tiny_policy(), Early(), out=out, resume=True, **knobs)
    assert ended.last("train")["step"] == 4


@pytest.mark.parametrize("moment", ["evaluating", "evaluated", "trained"])
def test_a_run_whose_disk_fills_ends_with_the_place_and_goes_on_when_there_is_room(tmp_path: Path, moment: str) -> None:
    """While it evaluates the log does not fit, after it the numbers, after a step the numbers or the rollouts."""
    torch.set_num_threads(1)
    knobs: dict[str, Any] = {**KNOBS, "steps": 4, "forests_every": 1}
    whole = rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "whole", **knobs)
    out, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fills(live: RunEvent) -> None:
        if live.kind == moment and live.step == 3:
            most = (out / ("log.txt" if moment == "evaluating" else "metrics.jsonl")).stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))

    try:
        with pytest.raises(OSError, match="File too large") as said:
            rolltree.train("grpo", tiny_policy(), Early(), out=out, listen=fills, **knobs)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(said.value.filename).startswith(str(out)), "the place is named"
    again = rolltree.train("grpo", tiny_policy(), Early(), out=out, resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)


@pytest.mark.parametrize("place", ["/proc/run", "/dev/null/run", "/sys/run"])
def test_a_place_that_cannot_be_written_is_refused_in_a_sentence(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is sampled, also for the superuser, whom permissions do not stop."""
    assert main(["train", "grpo", "--task", "arithmetic", "--steps", "1", "--out", place]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"rolltree: out {place} cannot be written (")
    assert said.endswith("; give another place or mend this one\n")
    assert "evaluating" not in said


def test_a_place_that_fails_while_it_is_written_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Libraries hand on what the system says of an open file, which has no name."""

    def full(verb: str, arguments: list[str]) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("rolltree.cli._dispatch", full)
    for code in (errno.ENOSPC, errno.EROFS, errno.EIO):
        assert main(["train"]) == 2
        way = "make room there or give another place" if code == errno.ENOSPC else "give another place or mend this one"
        assert capsys.readouterr().err == f"rolltree: {os.strerror(code)}; {way}\n"


@pytest.mark.parametrize("said", ["I/O error: No space left on device (os error 28)", "[errno 28] Detail: writing"])
def test_what_a_library_says_of_a_full_disk_is_a_sentence_and_other_errors_are_defects(
    said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(verb: str, arguments: list[str]) -> int:
        raise ValueError(said)

    monkeypatch.setattr("rolltree.cli._dispatch", fails)
    assert main(["train"]) == 2
    assert "No space left on device; make room" in capsys.readouterr().err
    said = "os error 2 and others"
    with pytest.raises(ValueError, match="os error 2"):
        main(["train"])
