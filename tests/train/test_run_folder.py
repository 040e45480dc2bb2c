"""The folder of a run: two never write in one, and none is left that nobody can use."""

from __future__ import annotations

import fcntl
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from rolltree.training import run as run_module
from rolltree.training.config import TrainError
from rolltree.training.lock import LOCK, FolderLock, held
from rolltree.training.run import CONFIG, RunFolder


def forked(work: Callable[[], None]) -> int:
    """A child that does something and ends with 0, or with 1 where that raised."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.describe("a run", {"train": {}})
    return folder


def test_a_folder_in_use_is_refused_in_this_process_and_in_others(tmp_path: Path) -> None:
    held = begun(tmp_path)
    with pytest.raises(TrainError, match=f"in use by process {os.getpid()};"):
        RunFolder(tmp_path, resume=True)

    def refused() -> None:
        with pytest.raises(TrainError, match="in use by process"):
            RunFolder(tmp_path, resume=True)

    assert ended(forked(refused)) == 0
    held.close()
    assert not (tmp_path / LOCK).exists()
    RunFolder(tmp_path, resume=True).close()


def test_what_the_lock_file_says_decides_nothing(tmp_path: Path) -> None:
    begun(tmp_path).close()
    (tmp_path / LOCK).write_text(f'{{"pid": {os.getpid()}, "started": 1, "host": "elsewhere"}}')
    held = RunFolder(tmp_path, resume=True)
    for told in ("", "not json", "[]", '{"pid": "x"}'):
        (tmp_path / LOCK).write_text(told)
        with pytest.raises(TrainError, match="in use by another process"):
            RunFolder(tmp_path, resume=True)
    held.close()


def test_a_killed_holder_leaves_the_folder_to_others_though_its_children_live(tmp_path: Path) -> None:
    begun(tmp_path).close()
    ready, leave = os.pipe(), os.pipe()

    def orphan() -> None:
        os.close(leave[1])
        os.write(ready[1], b"x")
        os.read(leave[0], 1)

    def hold() -> None:
        RunFolder(tmp_path, resume=True)
        forked(orphan)
        signal.pause()

    holder = forked(hold)
    assert os.read(ready[0], 1) == b"x"
    os.kill(holder, signal.SIGKILL)
    assert ended(holder) == -signal.SIGKILL
    RunFolder(tmp_path, resume=True).close()
    for end in (*ready, *leave):
        os.close(end)


def test_of_several_that_start_at_once_one_gets_in_at_a_time(tmp_path: Path) -> None:
    """They hold, let go and come again at full speed; a second one inside would find the first one's mark."""
    rounds, mark = 150, tmp_path / "inside"

    def come_and_go() -> None:
        got = 0
        while got < rounds:
            try:
                lock = FolderLock(tmp_path)
            except TrainError:
                continue
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            mark.unlink()
            lock.release()
            got += 1

    children = [forked(come_and_go) for _ in range(3)]
    assert [ended(child) for child in children] == [0, 0, 0]


def test_a_look_at_the_lock_turns_no_start_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LOCK).touch()
    look, whole, tries = os.open(tmp_path / LOCK, os.O_RDONLY), fcntl.flock, list[int]()
    whole(look, fcntl.LOCK_SH)

    def taken(handle: int, how: int) -> None:
        tries.append(how)
        if len(tries) == 3:
            os.close(look)
        whole(handle, how)

    monkeypatch.setattr(fcntl, "flock", taken)
    lock = FolderLock(tmp_path)
    assert held(tmp_path)
    lock.release()
    assert not held(tmp_path)


def test_a_lock_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    assert not held(tmp_path)


@pytest.mark.parametrize("where", ["begin", "config", "readme"])
def test_a_run_killed_while_it_describes_itself_leaves_a_folder_that_can_be_used(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    whole = run_module.new_file

    def dying(path: Path, **how: bool) -> object:
        if where == "begin" or path.name.lower().startswith(where):
            path.with_name(f".{path.name}.partial").write_text("{")
            os._exit(9)
        return whole(path, **how)

    def start() -> None:
        monkeypatch.setattr(run_module, "new_file", dying)
        begun(out)

    assert ended(forked(start)) == 9
    resume = (out / CONFIG).exists()
    assert resume == (where == "readme")
    folder = RunFolder(out, resume=resume)
    folder.describe("again", {"train": {}})
    assert folder.config()["train"] == {}
    assert (out / "README.md").read_text().startswith(run_module.TITLE)
    folder.close()


def test_a_readme_of_ours_without_a_configuration_is_no_stranger_and_another_is(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(run_module.README.format(title="x"))
    begun(tmp_path).close()
    other = tmp_path / "other"
    other.mkdir()
    (other / "README.md").write_text("# My thesis")
    with pytest.raises(TrainError, match="not empty"):
        RunFolder(other)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 200_000])
def test_a_configuration_that_cannot_be_read_is_a_sentence(tmp_path: Path, text: str) -> None:
    begun(tmp_path).close()
    (tmp_path / CONFIG).write_text(text)
    folder = RunFolder(tmp_path, resume=True)
    with pytest.raises(TrainError, match="cannot be read"):
        folder.config()
    folder.close()
