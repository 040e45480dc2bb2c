"""The C library as this package calls it. Imported by the inner process: standard library only, and little of it."""

from __future__ import annotations

import ctypes
import os
import sys

LINUX = sys.platform == "linux"
MACHINE = os.uname().machine if hasattr(os, "uname") else ""
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 38, 22


class KernelError(OSError):
    """A system call failed."""


def libc() -> ctypes.CDLL:
    """The C library, with errno kept."""
    return ctypes.CDLL(None, use_errno=True)


def checked(name: str, result: int) -> int:
    """A call's result, or its error with the call's name."""
    if result < 0:
        number = ctypes.get_errno()
        raise KernelError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int, pointer: object = 0) -> None:
    """Set an attribute of this process."""
    arguments = (ctypes.c_ulong(value), pointer if pointer else ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    checked(f"prctl {option}", libc().prctl(option, *arguments))
