"""The inner process: put the layers on, test them, report, and only then run the code.

Started with the job on standard input and a descriptor to report to. The report is written and its descriptor closed
before the first line of the code runs, so code cannot forge it.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from rolltree.task.sandbox import landlock, layers, probe, seccomp

ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""All that the code finds in its environment."""
KNOWN = frozenset(ENVIRONMENT) | {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"}
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo", "/dev/urandom")
BY = {
    "environment": (), "cpu": ("limits",), "memory": ("limits",), "processes": ("seccomp",),
    "network": ("seccomp", "namespaces"), "signals": ("seccomp", "landlock"), "reads": ("landlock",),
    "writes": ("landlock",), "disk": ("namespaces", "landlock"),
}  # fmt: skip
"""Guarantee -> the layers that can hold it."""
NAME = "<code>"


def main(report: int) -> None:
    """Lock, report, run."""
    job: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    held, lacking = lock(job)
    missing = sorted(set(job["demand"]) - {"time", "output"} - held.keys())
    os.write(report, json.dumps({"held": held, "missing": missing, "lacking": lacking}).encode())
    os.close(report)
    if missing:
        os._exit(0)
    status = run(job["code"])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # the code closed its own channel
    os._exit(status)


def lock(job: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Guarantees that hold with what holds them, and layers that could not be put on with the reason."""
    scratch, disk = job["scratch"], job["disk"]
    on: dict[str, str] = {}
    off: dict[str, str] = {}

    def put(name: str, layer: Callable[[], str]) -> None:
        try:
            on[name] = layer()
        except OSError as error:
            off[name] = error.strerror or str(error)

    import random  # before the layers: seeded, so that code which draws gives the same in every run

    random.seed(0)
    sys.path[:] = [*(p for p in sys.path if p != sys.argv[1]), *job["packages"]]
    layers.bind_to_parent(job["parent"])
    if disk:
        put("namespaces", lambda: layers.namespaces(scratch, disk))
    put("limits", lambda: layers.limits(cpu_seconds=job["cpu_seconds"], memory=job["memory"], disk=disk))
    layers.drop_capabilities()
    installed = [os.path.join(sys.base_prefix, "lib"), os.path.dirname(os.__file__), *job["packages"]]
    # Without a file system of its own the folder has no bound: then nothing is written at all.
    own = [scratch] if "namespaces" in on else []
    put("landlock", lambda: landlock.confine([*LIBRARIES, *installed, scratch], [*own, os.devnull]))
    bounded = probe.disk_bounded(scratch, disk)
    put("seccomp", seccomp.install)
    held = {name: by(name, on) for name in [*probe.holding(job, KNOWN), *(["disk"] if bounded else [])]}
    return held, off


def by(name: str, on: dict[str, str]) -> str:
    """Which of the layers in force hold a guarantee."""
    return ", ".join(on[layer] for layer in BY[name] if layer in on) or "a fresh environment"


def run(code: str) -> int:
    """Run a program as a notebook would: the value of a last expression is shown. 0, or 1 where it raised."""
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    sys.argv[:] = [NAME]
    try:
        tree = ast.parse(code, NAME)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, NAME, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), NAME, "eval"), space)
            if value is not None:
                print(repr(value))
    except SystemExit as error:
        if error.code is None or error.code == 0:
            return 0
        print(error.code)
        return 1
    except BaseException as error:
        tell(error, code)
        return 1
    return 0


def tell(error: BaseException, code: str) -> None:
    """The traceback of the code alone, without this file's frames."""
    import linecache
    import traceback

    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != NAME:
        frames = frames.tb_next
    try:
        print("".join(traceback.format_exception(type(error), error, frames)), end="")
    except (OSError, ValueError):
        pass  # the code closed its own channel
    except MemoryError:
        os.write(1, b"MemoryError\n")
