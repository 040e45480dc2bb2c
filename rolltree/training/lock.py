"""Who may write in a run's folder: a lock of the system's, held by the process itself.

The system gives it back when the process ends, however it ends; no clock, process number or host name decides.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
from pathlib import Path
from typing import Any

from rolltree.training.config import TrainError
from rolltree.tree.store.values import read_json

LOCK = "in-use.json"
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


class FolderLock:
    """Held from the moment it is made until `release`; a folder that another process holds is a TrainError."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / LOCK
        self._handle = -1
        while self._handle < 0:
            self._handle = self._take(folder)
        told = json.dumps({"pid": os.getpid(), "host": platform.node()})
        os.ftruncate(self._handle, 0)
        os.write(self._handle, told.encode())
        # A child that is forked and outlives this process would otherwise go on holding the folder.
        os.register_at_fork(after_in_child=self._forget)

    def release(self) -> None:
        """Let others in. The file goes while it is still locked, so nobody can hold a file that is not there."""
        if self._handle >= 0:
            self._file.unlink(missing_ok=True)
            self._forget()

    def _take(self, folder: Path) -> int:
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever let go in between has removed the file that is open here; the name may be another file by now.
            if os.fstat(handle).st_nlink and os.path.samestat(os.fstat(handle), os.stat(self._file)):
                return handle
        except FileNotFoundError:
            pass
        except OSError as error:
            looked_at = error.errno in _TAKEN and _shared(handle)
            os.close(handle)
            if looked_at:
                return -1
            if error.errno in _TAKEN:
                raise TrainError(
                    f"{folder} is in use by {_holder(self._file)}; wait for it, stop it, or choose another folder"
                ) from None
            raise TrainError(
                f"{folder} cannot be locked ({error.strerror}), so two runs could write in it at once; choose a folder "
                "on a file system with locks"
            ) from error
        os.close(handle)
        return -1

    def _forget(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            os.close(handle)


def _holder(file: Path) -> str:
    """Who holds a lock, for people."""
    try:
        told: dict[str, Any] = read_json(file.read_text())
        return f"process {int(told['pid'])}" + (f" on {told['host']}" if told["host"] != platform.node() else "")
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"


def held(folder: Path) -> bool:
    """Whether a process writes in a run's folder now. A look that falls on a start does not turn the start away."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return not _shared(handle)
    finally:
        os.close(handle)


def _shared(handle: int) -> bool:
    """Whether a lock can be shared now: nobody holds it, or only those who look."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
