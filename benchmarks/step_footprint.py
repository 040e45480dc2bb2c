"""How much code one training step runs through: files and functions of the package that a GRPO step calls, the metrics
that it logs, and names that more than one class has.

    python benchmarks/step_footprint.py [--recipe grpo] [--scheduler sync] [--list] [--json FILE]

The second step of a tiny run is counted, in all threads: what is imported or set up once is not part of a step.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rolltree
from rolltree.training.loop import RunEvent

PACKAGE = Path(rolltree.__file__).parent
COUNTED = 2
"""The step that is counted."""


class Recorder:
    """Remembers the code objects that are entered while it is on; every thread that starts later is watched."""

    def __init__(self) -> None:
        self.on = False
        self.seen: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.on and event == "call":
            self.seen.add(frame.f_code)

    def install(self) -> None:
        threading.setprofile(self)
        sys.setprofile(self)

    def remove(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def functions(self) -> dict[str, set[str]]:
        """Functions of the package by file; comprehensions and lambdas belong to the function around them."""
        out: dict[str, set[str]] = {}
        for code in self.seen:
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE) and not code.co_name.startswith("<"):
                out.setdefault(str(path.relative_to(PACKAGE)), set()).add(code.co_qualname)
        return out


def record(recipe: str, scheduler: str) -> tuple[dict[str, set[str]], int]:
    """Functions by file and the number of metrics of one step."""
    recorder = Recorder()

    def listen(live: RunEvent) -> None:
        if live.kind == "trained":
            recorder.on = live.step == COUNTED - 1

    recorder.install()
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = rolltree.train(
                recipe, "nano", "arithmetic", out=Path(folder) / "run", listen=listen, quiet=True, steps=COUNTED,
                prompts=4, eval_every=0, checkpoint_every=0, forests_every=0, scheduler=scheduler,
            )  # fmt: skip
    finally:
        recorder.remove()
    return recorder.functions(), len(done.last("train").keys() - {"kind", "step"})


def doubled_names() -> dict[str, list[str]]:
    """Names of classes that are defined in more than one file, with the files."""
    where: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    return {name: files for name, files in where.items() if len(files) > 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--recipe", default="grpo")
    parser.add_argument("--scheduler", default="")
    parser.add_argument("--list", action="store_true", help="name every file, function and doubled class")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    functions, metrics = record(arguments.recipe, arguments.scheduler)
    doubled = doubled_names()
    said = {
        "files": len(functions), "functions": sum(map(len, functions.values())), "metrics": metrics,
        "class names defined more than once": len(doubled),
    }  # fmt: skip
    print(", ".join(f"{count} {name}" for name, count in said.items()))
    folders = Counter(file.split("/")[0] for file in functions)
    print("files by folder: " + ", ".join(f"{name} {count}" for name, count in folders.most_common()))
    if arguments.list:
        for file in sorted(functions):
            print(f"{file}: {', '.join(sorted(functions[file]))}")
        for name, files in sorted(doubled.items()):
            print(f"class {name}: {', '.join(files)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
