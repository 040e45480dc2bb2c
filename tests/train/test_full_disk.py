"""A place that takes no more: the checkpoint under way is gone, those before it stay, and the system's word is kept."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rolltree.train.checkpoint import check_seal, checkpoints, save_checkpoint
from tests.train.toy import tiny_policy


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
