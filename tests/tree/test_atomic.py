"""Files and folders that appear whole: everything in them is on the disk before they take their names."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rolltree.tree.store import atomic
from rolltree.tree.store.atomic import new_file, new_folder, new_path


def test_every_file_and_folder_at_any_depth_is_on_the_disk_before_the_folder_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, synced = tmp_path / "folder", list[str]()

    def sync(path: Path) -> None:
        assert place.exists() == (path == place.parent), "the name comes after what it names"
        synced.append(path.name)

    monkeypatch.setattr(atomic, "sync", sync)
    with new_folder(place) as partial:
        (partial / "peers" / "judge").mkdir(parents=True)
        for name in ("model", "peers/judge/model", "peers/judge/config"):
            (partial / name).write_text(name)
    inside = sorted(p.name for p in place.rglob("*"))
    assert sorted(synced[: len(inside)]) == inside
    assert synced[len(inside) :] == [atomic.set_partial(place).name, tmp_path.name]


@pytest.mark.parametrize("said", [
    RuntimeError("I/O error: No space left on device (os error 28)"),
    OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
])  # fmt: skip
def test_whatever_a_library_says_of_a_full_disk_becomes_its_sentence_with_the_place(
    said: Exception, tmp_path: Path
) -> None:
    for make in (new_file, new_path, new_folder):
        place = tmp_path / make.__name__
        with pytest.raises(OSError, match="No space left") as told, make(place):
            raise said
        assert (told.value.errno, told.value.filename) == (errno.ENOSPC, str(place)), make
    assert not list(tmp_path.iterdir()), "nothing half-written stays"


def test_what_a_library_says_because_of_a_full_disk_is_told_as_that(tmp_path: Path) -> None:
    said = RuntimeError("unexpected pos 704 vs 598")  # as torch says it
    said.__context__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"), new_folder(tmp_path / "folder"):
        raise said


def test_an_error_of_another_kind_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="os error 2"), new_folder(tmp_path / "folder"):
        raise RuntimeError("no such file (os error 2)")
