"""The size and the shape of the code, of this checkout or of commits of it, as one table.

    python benchmarks/house.py [COMMIT ...] [--way] [--page FILE]

Files, lines, the median file, files under 60 lines, the share of import lines and circles of imports, those that only
types need included. With `--way` a step of GRPO is run in each, and the calls from the step to the engine are counted:
those on the stack when a request is handed to the engine, across the tasks that were created on the way.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
OPTIONAL = ("view", "gateway", "cluster", "adapt", "integrations", "latents")
"""Folders of the package that are parts of their own, each behind its extra."""
LATENTS = ("policy/flow", "engine/latent")
"""Where the latents stood before they had a folder."""


@dataclass(frozen=True)
class Part:
    """One row: a part of the code at one commit."""

    name: str
    files: int
    lines: int
    median: float
    short: int
    imports: float
    circles: int


def measured(root: Path) -> list[Part]:
    """The parts of a checkout."""
    core, optional = list[Path](), list[Path]()
    for path in sorted((root / "rolltree").rglob("*.py")):
        inner = path.relative_to(root / "rolltree").as_posix()
        apart = inner.startswith(tuple(f"{name}/" for name in OPTIONAL)) or inner.startswith(LATENTS)
        (optional if apart else core).append(path)
    rows = [_part("core", core, root), _part("optional parts", optional, root)]
    for name in ("rolltree_papers", "studies", "benchmarks", "tests", "attack"):
        if (root / name).is_dir():
            rows.append(_part(name, sorted((root / name).rglob("*.py")), root))
    return rows


def _part(name: str, paths: list[Path], root: Path) -> Part:
    if name == "rolltree_papers":
        paths = [path for path in paths if not path.name.startswith("test_")]
        code = [path for path in paths if path.read_text(encoding="utf-8").strip()]
    else:
        code = [path for path in paths if path.name != "__init__.py"]
    texts = {path: path.read_text(encoding="utf-8") for path in code}
    lengths = [len(text.splitlines()) for text in texts.values()] or [0]
    imports = sum(len(re.findall(r"^(?:from|import) ", text, re.MULTILINE)) for text in texts.values())
    return Part(
        name, len(code), sum(lengths), statistics.median(lengths), sum(n < 60 for n in lengths),
        imports / max(1, sum(lengths)), len(circles(texts, root)),
    )  # fmt: skip


def circles(texts: dict[Path, str], root: Path) -> list[list[str]]:
    """Groups of modules that import one another, wherever in the file the import stands."""
    names = {".".join(path.relative_to(root).with_suffix("").parts): path for path in texts}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        found = set[str]()
        for node in ast.walk(ast.parse(texts[path])):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
        graph[name] = (found & names.keys()) - {name}
    return [sorted(group) for group in _components(graph) if len(group) > 1]


def _components(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components, by Tarjan's algorithm without recursion."""
    index, low, on, stack, found = dict[str, int](), dict[str, int](), set[str](), list[str](), list[list[str]]()
    for start, used in graph.items():
        if start in index:
            continue
        work = [(start, iter(sorted(used)))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on.add(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = list[str]()
                    while True:
                        last = stack.pop()
                        on.discard(last)
                        group.append(last)
                        if last == node:
                            break
                    found.append(group)
    return found


_WAY = """
import asyncio, json, sys, tempfile
from pathlib import Path
import rolltree
from rolltree.engine.local import LocalEngine

package = Path(rolltree.__file__).parent
made, ways, on = {}, [], [False]

def frames():
    frame, out = sys._getframe(2), []
    while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(package) and not frame.f_code.co_name.startswith("<"):
            out.append((path.relative_to(package).as_posix(), frame.f_code.co_qualname))
        frame = frame.f_back
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return out + (made.get(id(task), []) if task is not None else [])

create = asyncio.BaseEventLoop.create_task
def create_task(loop, *args, **kwargs):
    where = frames()
    task = create(loop, *args, **kwargs)
    made[id(task)] = where
    return task
asyncio.BaseEventLoop.create_task = create_task

submit = LocalEngine.submit
def watched(self, *args, **kwargs):
    if on[0]:
        ways.append(frames())
    return submit(self, *args, **kwargs)
LocalEngine.submit = watched

def listen(live):
    if live.kind == "trained":
        on[0] = live.step == 1

with tempfile.TemporaryDirectory() as folder:
    rolltree.train("grpo", "nano", "arithmetic", out=Path(folder) / "run", listen=listen, quiet=True, steps=2,
                   prompts=4, eval_every=0, checkpoint_every=0, forests_every=0)
way = max(ways, key=len)[::-1]
first = max((i for i, (_, name) in enumerate(way) if name.endswith("Loop.step")), default=0)
print(json.dumps(way[first:]))
"""


def way(root: Path) -> list[tuple[str, str]]:
    """Files and functions from a step of the loop to the engine, the longest of the second step of a tiny run."""
    around = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _WAY], cwd=root, env=around, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return [(file, name) for file, name in json.loads(done.stdout.splitlines()[-1])]


def at(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    packed = subprocess.run(["git", "archive", commit], cwd=HERE, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    return folder


def page(of: dict[str, tuple[list[Part], list[tuple[str, str]]]]) -> str:
    """Tables in Markdown."""
    lines = ["| | part | files | lines | median | under 60 lines | imports | circles |", "|" + 8 * "---|"]
    for commit, (parts, _) in of.items():
        for p in parts:
            shape = f"{p.files} | {p.lines:,} | {p.median:g} | {p.short} | {100 * p.imports:.1f} % | {p.circles}"
            lines.append(f"| {commit} | {p.name} | {shape} |")
    for commit, (_, calls) in of.items():
        files = dict.fromkeys(file for file, _ in calls)
        if files:
            lines += ["", f"From the step to the engine, {commit}: {len(calls)} calls through {len(files)} files.", ""]
        for file in files:
            lines.append(f"1. `{file}`: {', '.join(f'`{name}`' for where, name in calls if where == file)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("commits", nargs="*", help="commits before this checkout, to compare with")
    ask.add_argument("--way", action="store_true", help="count the calls from a step to the engine too (half a minute)")
    ask.add_argument("--page", type=Path, help="write the tables here")
    asked = ask.parse_args()
    found: dict[str, tuple[list[Part], list[tuple[str, str]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for commit in asked.commits:
            root = at(commit, Path(folder) / commit)
            found[commit] = measured(root), way(root) if asked.way else []
    found["now"] = measured(HERE), way(HERE) if asked.way else []
    text = page(found)
    print(text, end="")
    if asked.page is not None:
        way_too = ["--way"] if asked.way else []
        words = " ".join(["python benchmarks/house.py", *asked.commits, *way_too, "--page", str(asked.page)])
        asked.page.write_text(f"# Size and shape of the code\n\nWritten by `{words}`.\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
