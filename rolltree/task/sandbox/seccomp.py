"""Seccomp: which system calls of `calls.py` a process and its children may make, from now on and for good."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

from rolltree.task.sandbox.calls import (
    ALLOWED,
    COMMANDS,
    FAMILIES,
    KEPT_FROM_AGENTS,
    LIMITS,
    PAIRS,
    SOCKET,
    SOCKET_PAIR,
    TO_SELF,
)  # fmt: skip
from rolltree.task.sandbox.kernel import LINUX, MACHINE, PR_SET_SECCOMP, KernelError, prctl

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> column of the tables, and what the kernel calls it."""
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
PASS, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
NUMBER, ARCHITECTURE = 0, 4
OTHER_TABLE = 0x40000000
"""From here on the numbers of calls are those of another table of the same machine."""
KIND = 0xF
"""The part of a socket's type that says its kind; the rest are flags."""

Step = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


class _Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step))]


def program(machine: str, pid: int) -> list[Step]:
    """The filter for a machine and a process: what computing needs, and nothing else."""
    column, steps = _begun(machine)
    for numbers in ALLOWED.values():
        if numbers[column] >= 0:
            steps += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, PASS)]
    for numbers, commands in COMMANDS.values():
        steps += _when(numbers[column], _one_of(1, commands))
    for numbers in TO_SELF.values():
        steps += _when(numbers[column], _one_of(0, (pid,)))
    steps += _when(LIMITS[column], _all_zero(0, 2))
    return [*steps, (RETURN, 0, 0, REFUSE)]


def program_of_agents(machine: str) -> list[Step]:
    """The filter for a program that does its work among others: all but what reaches past its namespaces."""
    column, steps = _begun(machine)
    steps += [(AT_LEAST, 0, 1, OTHER_TABLE), (RETURN, 0, 0, REFUSE)]
    for numbers in KEPT_FROM_AGENTS.values():
        steps += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, REFUSE)]
    steps += _when(SOCKET[column], _one_of(0, FAMILIES))
    steps += _when(SOCKET_PAIR[column], _one_of(1, PAIRS, KIND))
    return [*steps, (RETURN, 0, 0, PASS)]


def install() -> str:
    """Put the filter of computing in force; returns the layer's name. Needs "no new privileges"."""
    return _installed(lambda: program(MACHINE, os.getpid()))


def install_for_agent() -> str:
    """Put the filter of agents in force; returns the layer's name. Needs "no new privileges"."""
    return _installed(lambda: program_of_agents(MACHINE))


def _installed(made: Callable[[], list[Step]]) -> str:
    if not LINUX:
        raise KernelError(0, "seccomp is Linux's")
    steps = made()
    array = (_Step * len(steps))(*(_Step(*step) for step in steps))
    prctl(PR_SET_SECCOMP, 2, ctypes.byref(_Program(len(steps), array)))
    return "seccomp"


def _begun(machine: str) -> tuple[int, list[Step]]:
    """The column of a machine's numbers, and steps that load the call's number; another machine's calls end it."""
    if machine not in ARCHITECTURES:
        raise KernelError(0, f"no table of system calls for {machine}; there are {', '.join(ARCHITECTURES)}")
    column, architecture = ARCHITECTURES[machine]
    return column, [
        (LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER),
    ]  # fmt: skip


def _when(number: int, then: list[Step]) -> list[Step]:
    """Steps for one call; they must return."""
    return [(EQUAL, 0, len(then), number), *then]


def _one_of(argument: int, values: tuple[int, ...], mask: int = 0) -> list[Step]:
    """Pass where an argument (as 32 bits, which these calls take, or the part that a mask leaves) is one of these."""
    out: list[Step] = [(LOAD, 0, 0, _low(argument)), *([(AND, 0, 0, mask)] if mask else [])]
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
