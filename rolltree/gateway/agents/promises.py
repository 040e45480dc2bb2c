"""What a sandboxed agent cannot do, each tried inside before it starts; a promise not seen to hold is not given."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Mapping
from typing import Any

from rolltree.task.sandbox.kernel import libc

PROMISES: Mapping[str, str] = {
    "reads": "it reads no file but the system's, its own and those that reads= names",
    "writes": "it changes no file but those of its folder",
    "scratch": "its folder holds no more than so many bytes",
    "processes": "it has no more than so many processes and threads",
    "signals": "it sees and signals no process but its own",
    "memory": "it shares no memory, queue or semaphore with others",
    "network": "it reaches the policy and no other address",
    "sockets": "it opens no socket of the host",
    "keys": "it reads and keeps no keys of the kernel",
}
"""Every promise and what it says. Gone with the agent are its processes, its folder and its shared memory."""
NAMESPACES = {"signals": "pid", "memory": "ipc", "network": "net"}
UNSEEN = ("/proc/self/environ", "/proc/1/environ", "/root", "/home", "/")
"""What most systems have, and no agent needs."""
KEYCTL = {"x86_64": 250, "aarch64": 219}
UNIX, MACHINES, DATAGRAMS = 1, 40, 2


def namespaces() -> dict[str, str]:
    """Which namespaces this process is in."""
    return {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES.values()}


def children_bound() -> bool:
    """Whether the kernel bounds how many processes this user has here. It does not where the user is root outside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    try:
        child = os.fork()
    except OSError:
        return True
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return False


def broken(job: Mapping[str, Any], before: Mapping[str, str], *, counted: bool) -> list[str]:
    """Promises that do not hold now, by name. `counted` says that a process outside counts children and ends them."""
    tests: dict[str, Callable[[], bool]] = {
        "reads": lambda: all(_refused(lambda at=at: os.open(at, os.O_RDONLY)) for at in _unseen(job["reads"])),
        "writes": lambda: all(os.statvfs(at).f_flag & os.ST_RDONLY for at in ("/", os.path.dirname(job["folder"]))),
        "scratch": lambda: _room(job["folder"]) <= job["size"] + os.sysconf("SC_PAGE_SIZE"),
        "processes": lambda: counted or children_bound(),
        "sockets": _no_sockets,
        "keys": lambda: libc().syscall(KEYCTL[os.uname().machine], 0, -3, 0) < 0,
    }
    now = namespaces()
    apart = {name: before[kind] != now[kind] for name, kind in NAMESPACES.items()}
    return [name for name in PROMISES if not (apart[name] if name in apart else tests[name]())]


def _unseen(reads: list[str]) -> list[str]:
    """Those that nobody asked to be opened."""
    return [at for at in UNSEEN if os.path.exists(at) and not any(_holds(place, at) for place in reads)]


def _holds(place: str, at: str) -> bool:
    return os.path.commonpath([place, at]) == place


def _room(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def _no_sockets() -> bool:
    attempts = (
        lambda: socket.socket(UNIX, socket.SOCK_STREAM),
        lambda: socket.socket(MACHINES, socket.SOCK_STREAM),
        lambda: socket.socketpair(UNIX, DATAGRAMS),
    )
    return all(_refused(attempt) for attempt in attempts)


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False
