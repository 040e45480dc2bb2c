"""Landlock (Linux 5.13): which files a process and its children may open, from now on and for good."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from rolltree.task.sandbox.kernel import LINUX, KernelError, checked, libc

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR, WRITE_FILE, TRUNCATE = 1, 1 << 2, 1 << 3, 1 << 1, 1 << 14
CONNECT = 1 << 1
"""Connecting by TCP, among the rights over ports."""
READ = READ_FILE | READ_DIR
WRITE = WRITE_FILE | TRUNCATE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8
"""Write, truncate, remove folders and files, make folders and files."""
LEAST = 3
"""The version that restricts truncation; without it files elsewhere could be emptied."""
WITH_PORTS = 4
"""The version that knows ports."""
RIGHTS = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Version -> every right over files that it knows."""


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The version this kernel speaks; 0 = none."""
    if not LINUX:
        return 0
    return max(int(libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))), 0)


class _Port(ctypes.Structure):
    _fields_ = [("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64)]


def confine(read: Iterable[str], write: Iterable[str], *, execute: bool = False, connect: Iterable[int] = ()) -> str:
    """Allow reading and writing beneath these paths and nowhere else; returns the layer's name.

    `execute` lets programs there be started; TCP may connect to the ports `connect` alone. Paths that do not exist are
    left out. Needs "no new privileges".
    """
    speaks, ports = version(), list(connect)
    least = WITH_PORTS if ports else LEAST
    if speaks < least:
        raise KernelError(0, f"Landlock is version {speaks} here, {least} is needed")
    rights = RIGHTS[5 if speaks >= 5 else 3]
    # Version 4 adds TCP, version 6 signals and abstract sockets: all handled, and none allowed by any rule.
    asked = _Ruleset(rights, 3 if speaks >= 4 else 0, 3 if speaks >= 6 else 0)
    size = 24 if speaks >= 6 else 16 if speaks >= 4 else 8
    ruleset = checked("landlock", libc().syscall(CREATE_RULESET, ctypes.byref(asked), ctypes.c_size_t(size), 0))
    runs = EXECUTE if execute else 0
    for paths, allowed in ((read, READ | runs), (write, READ | WRITE | runs)):
        for path in paths:
            _allow(ruleset, path, allowed)
    for port in ports:
        rule = _Port(CONNECT, port)
        checked("landlock", libc().syscall(ADD_RULE, ruleset, 2, ctypes.byref(rule), ctypes.c_uint32(0)))
    checked("landlock", libc().syscall(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)))
    os.close(ruleset)
    return f"Landlock {speaks}"


def _allow(ruleset: int, path: str, allowed: int) -> None:
    try:
        place = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        allowed &= READ_FILE | WRITE_FILE | TRUNCATE | EXECUTE
    rule = _Beneath(allowed, place)
    checked("landlock", libc().syscall(ADD_RULE, ruleset, 1, ctypes.byref(rule), ctypes.c_uint32(0)))
    os.close(place)
