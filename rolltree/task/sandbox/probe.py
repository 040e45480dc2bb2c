"""Try what must not work, from inside: a guarantee that was not seen to hold is not reported."""

from __future__ import annotations

import mmap
import os
import resource
import signal
from collections.abc import Callable, Mapping

from rolltree.task.sandbox.kernel import libc

NO_BUSINESS = ("/etc/passwd", "/proc/self/environ", "/proc/1/environ")
"""Files that exist on most systems, are no part of Python, and mostly can be read."""


def holding(job: Mapping[str, int | str], known: frozenset[str]) -> list[str]:
    """Which guarantees hold now, each by a test; what was tried and worked is undone."""
    tests: dict[str, Callable[[], bool]] = {
        "environment": lambda: os.environ.keys() <= known,
        "cpu": lambda: resource.getrlimit(resource.RLIMIT_CPU)[0] == job["cpu_seconds"],
        "memory": lambda: _refused(lambda: mmap.mmap(-1, int(job["memory"])).close()),
        "processes": _no_fork,
        "network": lambda: all(libc().socket(family, 1, 0) < 0 for family in (1, 2, 10)),
        "signals": lambda: _refused(lambda: os.kill(os.getppid(), 0)),
        "reads": lambda: all(_refused(_opening(path, os.O_RDONLY)) for path in NO_BUSINESS),
        "writes": lambda: _refused(_opening(f"{job['scratch']}/../outside", os.O_WRONLY | os.O_CREAT)),
    }
    return [name for name, test in tests.items() if test()]


def disk_bounded(scratch: str, disk: int) -> bool:
    """Whether the scratch folder holds at most so many bytes, or nothing can be written there at all."""
    room = os.statvfs(scratch)
    page = os.sysconf("SC_PAGE_SIZE")
    if room.f_blocks * room.f_frsize <= disk + page and disk:
        return True
    return _refused(_opening(f"{scratch}/.probe", os.O_WRONLY | os.O_CREAT))


def _opening(path: str, flags: int) -> Callable[[], None]:
    return lambda: os.close(os.open(path, flags, 0o600))


def _refused(attempt: Callable[[], object]) -> bool:
    """Whether the system said no. A file that is not there was not read either."""
    try:
        attempt()
    except OSError:
        return True
    return False


def _no_fork() -> bool:
    child = libc().fork()
    if child == 0:
        os._exit(0)
    if child > 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return child < 0
