"""What an agent's process may take and touch, and the command that holds it to that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rolltree.gateway.agents.boxed import REFUSED
from rolltree.gateway.agents.opened import places, withheld
from rolltree.task.items import TaskError

ROOT = str(Path(__file__).resolve().parents[3])
LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from rolltree.gateway.agents.boxed import main; main()"
PROCESSES, SCRATCH = 512, 512
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
    """Whether it is kept in: `promises.PROMISES` says what that means."""
    reads: tuple[str, ...] = ()
    """Further folders a sandboxed agent may read."""
    processes: int = PROCESSES
    """Processes and threads that a sandboxed agent may have at a time."""
    scratch: int = SCRATCH
    """Megabytes that the folder of a sandboxed agent holds; they are memory of this machine."""

    def __post_init__(self) -> None:
        for name in ("total_seconds", "cpu_seconds", "memory"):
            if getattr(self, name) < 0:
                raise TaskError(f"{name}={getattr(self, name)} limits nothing; give a number above 0, or 0 for none")
        if self.output < 1:
            raise TaskError(f"output={self.output} leaves no room for an answer; give bytes")
        for name in ("processes", "scratch"):
            if getattr(self, name) < 1:
                raise TaskError(f"{name}={getattr(self, name)} leaves a sandboxed agent nothing; give 1 or more")
        if not self.sandbox:
            for name, plain in (("reads", ()), ("processes", PROCESSES), ("scratch", SCRATCH)):
                if getattr(self, name) != plain:
                    raise TaskError(f"{name}= is a sandbox's; give sandbox=true too")
        for folder in self.reads:
            if not Path(folder).exists():
                raise TaskError(f"reads={folder!r} is not there; give folders that exist, or leave it out")

    @property
    def boxed(self) -> bool:
        """Whether a process stands around the agent's."""
        return bool(self.cpu_seconds or self.memory or self.sandbox)

    def command(self, words: Sequence[str], scratch: str, port: int) -> list[str]:
        """The agent's command, held to the limits."""
        if not self.boxed:
            return list(words)
        job: dict[str, Any] = {
            "parent": os.getpid(), "memory": self.memory << 20, "cpu_seconds": self.cpu_seconds, "sandbox": None,
        }  # fmt: skip
        if self.sandbox:
            reads = [*(str(place) for place in places(words)), *(str(Path(each).resolve()) for each in self.reads)]
            job["sandbox"] = {
                "reads": reads, "folder": scratch, "size": self.scratch << 20, "port": port,
                "processes": self.processes,
            }  # fmt: skip
        placed = [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]
        return [sys.executable, "-s", "-P", "-S", "-c", LAUNCH, ROOT, json.dumps(job), *placed]

    def withheld(self, words: Sequence[str]) -> str:
        """What a sandbox did not open of what the command names, as a part of a sentence; "" = it opened all."""
        shut = withheld(words) if self.sandbox else []
        shut = [
            each for each in shut if not any(Path(each).is_relative_to(Path(told).resolve()) for told in self.reads)
        ]
        if not shut:
            return ""
        return f" (of {shut[0]} it reads its own file alone, for more stands there; reads={shut[0]} opens all of it)"

    def environment(self, told: Mapping[str, str], scratch: str) -> dict[str, str]:
        """What the agent finds in its environment."""
        if not self.sandbox:
            return {**os.environ, **told}
        kept = {name: os.environ[name] for name in PASSED if name in os.environ}
        return {**kept, "HOME": scratch, "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1", **told}


@cache
def check_sandbox() -> None:
    """Refuse a sandbox that this machine cannot hold, before a run depends on it."""
    with TemporaryDirectory(prefix="rolltree-agent-", ignore_cleanup_errors=True) as scratch:
        command = AgentLimits(sandbox=True).command(["true"], scratch, 1)
        ran = subprocess.run(command, cwd=scratch, capture_output=True, timeout=60, check=False)
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
