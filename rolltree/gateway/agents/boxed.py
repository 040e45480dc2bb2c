"""The process around an agent's: it puts limits and layers on and starts the agent, whose children end with it.

Started as `python -c LAUNCH ROOT JOB COMMAND …`. What it cannot promise it says, and does not start the agent.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from rolltree.task.sandbox import landlock, layers
from rolltree.task.sandbox.kernel import LINUX, KernelError, checked, libc

REFUSED = 121
"""Exit code where the agent was not started."""
NEW_USER, NEW_PIDS = 0x10000000, 0x20000000


def main() -> None:
    """Lock, start the agent, end as it ends."""
    job: dict[str, Any] = json.loads(sys.argv[2])
    try:
        layers.bind_to_parent(job["parent"])
        if job["sandbox"]:
            _own_processes()
        child = os.fork()
    except OSError as error:
        _refuse(error)
    if child:
        _, ended = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(ended) if os.WIFEXITED(ended) else 128 + os.WTERMSIG(ended))
    try:
        # In a namespace of processes the parent has no number here; the first process ends with it all the same.
        layers.bind_to_parent(os.getppid())
        for name, most in (("RLIMIT_AS", job["memory"]), ("RLIMIT_CPU", job["cpu_seconds"])):
            if most:
                resource.setrlimit(getattr(resource, name), (most, most))
        if job["sandbox"]:
            layers.drop_capabilities()
            landlock.confine(job["reads"], job["writes"], execute=True, connect=job["ports"])
        os.execvpe(sys.argv[3], sys.argv[3:], os.environ)
    except OSError as error:
        _refuse(error)


def _own_processes() -> None:
    """A namespace of processes: when its first one ends, the kernel ends the others, whatever they did to stay."""
    if not LINUX:
        raise KernelError(0, "namespaces are Linux's")
    user, group = os.getuid(), os.getgid()
    checked("unshare", libc().unshare(NEW_USER | NEW_PIDS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _refuse(error: OSError) -> None:
    os.write(2, f"{error.strerror or error}\n".encode())
    os._exit(REFUSED)
