"""What an agent's process may take and touch, and the command that holds it to that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rolltree.gateway.agents.boxed import REFUSED
from rolltree.task.items import TaskError

ROOT = str(Path(__file__).resolve().parents[3])
LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from rolltree.gateway.agents.boxed import main; main()"
SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random",
)  # fmt: skip
PASSED = ("PATH", "LANG", "LC_ALL", "TZ")
"""What a sandboxed agent finds in its environment beside what it is told."""


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Of each run of an agent. 0 = no limit."""

    total_seconds: float = 0.0
    """Wall clock from its start to its end, answers included."""
    cpu_seconds: int = 0
    """Processor time of each of its processes."""
    memory: int = 0
    """Megabytes of address space of each of its processes."""
    output: int = 1_000_000
    """Bytes it may print; the final answer is what it prints."""
    sandbox: bool = False
    """Whether it reads the system, its own folder and `reads` alone, writes in a folder of its own that is gone
    afterwards, connects by TCP to the policy alone, and leaves no process behind, whatever happens to this one."""
    reads: tuple[str, ...] = ()
    """Further folders a sandboxed agent may read."""

    def __post_init__(self) -> None:
        for name in ("total_seconds", "cpu_seconds", "memory"):
            if getattr(self, name) < 0:
                raise TaskError(f"{name}={getattr(self, name)} limits nothing; give a number above 0, or 0 for none")
        if self.output < 1:
            raise TaskError(f"output={self.output} leaves no room for an answer; give bytes")
        if self.reads and not self.sandbox:
            raise TaskError("reads= names folders of a sandbox; give sandbox=true too")

    @property
    def boxed(self) -> bool:
        """Whether a process stands around the agent's."""
        return bool(self.cpu_seconds or self.memory or self.sandbox)

    def command(self, words: Sequence[str], scratch: str, port: int) -> list[str]:
        """The agent's command, held to the limits."""
        if not self.boxed:
            return list(words)
        job: dict[str, Any] = {
            "parent": os.getpid(), "sandbox": self.sandbox,
            "memory": self.memory << 20, "cpu_seconds": self.cpu_seconds,
            "reads": [*SYSTEM, *_installed(words[0]), *_folders(words), *self.reads], "writes": [scratch, os.devnull],
            "ports": [port],
        }  # fmt: skip
        placed = [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]
        return [sys.executable, "-s", "-P", "-S", "-c", LAUNCH, ROOT, json.dumps(job), *placed]

    def environment(self, told: Mapping[str, str], scratch: str) -> dict[str, str]:
        """What the agent finds in its environment."""
        if not self.sandbox:
            return {**os.environ, **told}
        kept = {name: os.environ[name] for name in PASSED if name in os.environ}
        return {**kept, "HOME": scratch, "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1", **told}


@cache
def check_sandbox() -> None:
    """Refuse a sandbox that this machine cannot hold, before a run depends on it."""
    limits = AgentLimits(sandbox=True)
    ran = subprocess.run(limits.command(["true"], "/", 1), capture_output=True, timeout=60, check=False)
    if ran.returncode:
        why = ran.stderr.decode(errors="replace").strip() or f"code {ran.returncode}"
        raise TaskError(
            f"this machine cannot keep an agent in ({why}); use Linux 6.7 or later with Landlock and user namespaces, "
            "or leave sandbox out"
        )


def refused(code: int, words: str, error: str) -> TaskError | None:
    """Why an agent was not started, where the process around it says so."""
    if code != REFUSED:
        return None
    return TaskError(f"the agent {words!r} cannot be started: {error.strip() or 'its limits cannot be held here'}")


def _installed(program: str) -> list[str]:
    """Where a program and its libraries stand: a Python of an environment needs the one it was made from."""
    found = shutil.which(program)
    if found is None:
        return []
    places = {Path(found).absolute(), Path(found).resolve()}
    return sorted({str(place.parent.parent) for place in places})


def _folders(words: Sequence[str]) -> list[str]:
    """Where the files that the command names stand."""
    return sorted({str(Path(word).resolve().parent) for word in words[1:] if Path(word).is_file()})
