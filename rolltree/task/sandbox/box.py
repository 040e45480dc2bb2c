"""What a box allows, what it promises, and what came out of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rolltree.errors import RolltreeError

GUARANTEES: Mapping[str, str] = {
    "time": "it ends within so many seconds of wall clock, in which it computes or sleeps",
    "output": "no more than so many bytes of what it prints are taken",
    "environment": "it sees none of this process's environment variables",
    "cpu": "it computes no longer than so many seconds",
    "memory": "it maps no more than so many bytes",
    "processes": "it starts no process and no thread",
    "network": "it opens no socket",
    "signals": "it can signal nobody but itself",
    "reads": "it opens no file but its own and those of the Python installation",
    "writes": "it changes no file but its own",
    "disk": "its own files hold no more than so many bytes",
}
"""Every guarantee and what it says."""

Ended = Literal["ok", "raised", "time", "cpu", "output", "killed"]
"""ok; an exception; over its time, the processor time or the output; ended by another signal."""


class SandboxError(RolltreeError, RuntimeError):
    """Code cannot be run as demanded here: names the guarantee and the way out. Never a fault of the code."""


@dataclass(frozen=True, slots=True)
class Box:
    """Limits of one run and the guarantees to hold. Nothing runs unless all but `without` hold, by test, inside."""

    seconds: float = 5.0
    """Wall clock, from the moment the code begins. Time in which it waits for a processor is not counted where the
    system tells it (Linux): a busy machine stops no program."""
    cpu_seconds: int = 5
    memory: int = 512 << 20
    """Bytes of address space; Python itself takes about 20 MB."""
    disk: int = 4 << 20
    """Bytes of files in its scratch folder, which is empty at the start and gone at the end; 0 = no files."""
    output: int = 16_000
    """Bytes of output taken; code that prints more is stopped."""
    packages: bool = False
    """Whether installed packages can be imported (and read); else the standard library alone."""
    without: frozenset[str] = frozenset()
    """Guarantees to do without where a machine cannot hold them."""

    def __post_init__(self) -> None:
        for name in ("seconds", "cpu_seconds", "memory", "output"):
            if not getattr(self, name) > 0:
                raise SandboxError(f"a box with {name}={getattr(self, name)} runs nothing; give a number above 0")
        if self.disk < 0:
            raise SandboxError(f"a box with disk={self.disk} makes no sense; give bytes, or 0 for no files")
        for name in self.without:
            if name not in GUARANTEES:
                raise SandboxError(f"there is no guarantee {name!r} to do without; there are {', '.join(GUARANTEES)}")

    @property
    def demand(self) -> frozenset[str]:
        """The guarantees that must hold."""
        return frozenset(GUARANTEES) - self.without

    def job(self, code: str, scratch: str, packages: tuple[str, ...]) -> dict[str, Any]:
        """What the inner process is told."""
        return {
            "code": code, "scratch": scratch, "packages": packages, "cpu_seconds": self.cpu_seconds,
            "memory": self.memory, "disk": self.disk, "demand": sorted(self.demand), "parent": os.getpid(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one run."""

    text: str
    """What it printed on either channel, or the traceback; bounded by the box."""
    ended: Ended
    held: Mapping[str, str]
    """Guarantee -> by what it was held in this run. Each was tested inside before the code began."""
    seconds: float
    note: str = ""
    """Why it was stopped, in words; empty where it ended by itself."""

    @property
    def failed(self) -> bool:
        """Whether it did not end well."""
        return self.ended != "ok"
