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
from rolltree.train.checkpoint import check_seal, checkpoints, save_checkpoint
from rolltree.train.loop import RunEvent
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
        about = {"model": policy.model, "tokenizer": policy.codec.tokenizer, "state": {"x": "y" * state}}
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
    assert said.startswith(f"rolltree: {place}")
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
        assert capsys.readouterr().err == f"rolltree: {os.strerror(code)}; give another place or mend this one\n"
