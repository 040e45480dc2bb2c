"""Files and folders that appear whole or not at all, whenever the writer dies."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rolltree.errors import RolltreeError, refused_write
from rolltree.tree.store.values import StoreError

_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Say of which file the system speaks where it does not say so itself: a write to one that is open names none, and
    libraries hand on what the system said in errors of their own."""
    try:
        yield
    except RolltreeError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        said = refused_write(error) or (error if isinstance(error, OSError) else None)
        if said is None:
            raise
        code = said.errno or errno.EIO
        raise OSError(code, os.strerror(code), said.filename or str(path)) from error


def check_writable(path: Path, option: str = "--out", *, folder: bool = False) -> None:
    """Refuse, before work is done for it, a file or folder that could not be written at the end.

    The system itself is asked, by a file of that name that is removed again: rights alone do not say it.
    """
    if not folder and path.is_dir():
        raise StoreError(f"{option} {path} is a folder; give a file's name")
    probe, made = path / ".writable" if folder else _beside(path, "writable"), list[Path]()
    try:
        for place in reversed([one for one in probe.absolute().parents if not one.exists()]):
            place.mkdir()
            made.append(place)
        try:
            with probe.open("wb") as sink:
                sink.write(b"x")
                sink.flush()
                os.fsync(sink.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"{option} {path} cannot be written ({error.strerror}); give another place or mend this one"
        ) from None
    finally:
        for place in reversed(made):
            with suppress(OSError):  # somebody may have put something there
                place.rmdir()


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Generator[IO[str]]:
    """A text file that takes its name only once it is complete and on the disk."""
    with new_path(path, overwrite=overwrite) as partial, partial.open("w", encoding="utf-8", newline="\n") as sink:
        yield sink


@contextmanager
def new_path(path: Path, *, overwrite: bool = False) -> Generator[Path]:
    """Where a library may write a file that takes its name only once it is complete and on the disk."""
    if path.exists() and not overwrite:
        raise StoreError(f"{path} exists; choose another file (or say `overwrite`, where that can be said)")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = set_partial(path)
    try:
        with naming(path):
            yield partial
            sync(partial)
        partial.replace(path)
        sync(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Generator[Path]:
    """An empty folder to fill, which takes its name only once everything written into it is on the disk.

    Where the system cannot exchange two names at once, replacing takes two renames. A writer that dies between them
    leaves the old folder under `set_aside(path)`, and the next write puts it back first, so there is always one whole
    copy.
    """
    aside, partial = set_aside(path), set_partial(path)
    if aside.exists() and not path.exists():
        aside.rename(path)
    if path.exists() and not overwrite:
        raise StoreError(f"{path} exists; choose another folder (or say `overwrite`, where that can be said)")
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in (aside, partial):
        shutil.rmtree(stale, ignore_errors=True)
    partial.mkdir()
    try:
        with naming(path):
            yield partial
        for inner in partial.rglob("*"):
            sync(inner)
        sync(partial)
        if not (path.exists() and _exchanged(partial, path)):
            if path.exists():
                path.rename(aside)
            partial.rename(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for old in (aside, partial):
        shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two names change places in one step, so that neither is ever missing; False where the system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def set_aside(path: Path) -> Path:
    """Where a folder stands while it is being replaced."""
    return _beside(path, "replaced")


def set_partial(path: Path) -> Path:
    """Where a file or folder stands while it is being written."""
    return _beside(path, "partial")


def sync(path: Path) -> None:
    """Force a file or the entries of a folder onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f".{path.name}.{what}")
