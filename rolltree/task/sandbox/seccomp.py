"""Seccomp: the system calls of `calls.py` and no others, for this process and for good."""

from __future__ import annotations

import ctypes
import errno
import os

from rolltree.task.sandbox.calls import ALLOWED, COMMANDS, LIMITS, TO_SELF
from rolltree.task.sandbox.kernel import LINUX, MACHINE, PR_SET_SECCOMP, KernelError, prctl

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> column of the tables, and what the kernel calls it."""
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
PASS, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
NUMBER, ARCHITECTURE = 0, 4

Step = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


class _Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step))]


def program(machine: str, pid: int) -> list[Step]:
    """The filter for a machine and a process."""
    if machine not in ARCHITECTURES:
        raise KernelError(0, f"no table of system calls for {machine}; there are {', '.join(ARCHITECTURES)}")
    column, architecture = ARCHITECTURES[machine]
    steps: list[Step] = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL)]
    steps.append((LOAD, 0, 0, NUMBER))
    for numbers in ALLOWED.values():
        if numbers[column] >= 0:
            steps += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, PASS)]
    for numbers, commands in COMMANDS.values():
        steps += _when(numbers[column], _one_of(1, commands))
    for numbers in TO_SELF.values():
        steps += _when(numbers[column], _one_of(0, (pid,)))
    steps += _when(LIMITS[column], _all_zero(0, 2))
    return [*steps, (RETURN, 0, 0, REFUSE)]


def install() -> str:
    """Put the filter in force; returns the layer's name. Needs "no new privileges"."""
    if not LINUX:
        raise KernelError(0, "seccomp is Linux's")
    steps = program(MACHINE, os.getpid())
    array = (_Step * len(steps))(*(_Step(*step) for step in steps))
    prctl(PR_SET_SECCOMP, 2, ctypes.byref(_Program(len(steps), array)))
    return "seccomp"


def _when(number: int, then: list[Step]) -> list[Step]:
    """Steps for one call; they must return."""
    return [(EQUAL, 0, len(then), number), *then]


def _one_of(argument: int, values: tuple[int, ...]) -> list[Step]:
    """Pass where an argument (as 32 bits, which these calls take) is one of these."""
    out: list[Step] = [(LOAD, 0, 0, _low(argument))]
    for value in values:
        out += [(EQUAL, 0, 1, value), (RETURN, 0, 0, PASS)]
    return [*out, (RETURN, 0, 0, REFUSE)]


def _all_zero(*arguments: int) -> list[Step]:
    """Pass where these arguments are zero in all 64 bits."""
    out: list[Step] = []
    for place in [_low(a) + half for a in arguments for half in (0, 4)]:
        out += [(LOAD, 0, 0, place), (EQUAL, 1, 0, 0), (RETURN, 0, 0, REFUSE)]
    return [*out, (RETURN, 0, 0, PASS)]


def _low(argument: int) -> int:
    """Where the low half of an argument lies; both machines are little-endian."""
    return 16 + 8 * argument
