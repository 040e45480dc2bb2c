"""One run of one arm with one seed: described in full, made once, and found again by what it was made from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable
from urllib.parse import unquote

from rolltree.compare.arms import Arm
from rolltree.compare.definitions import Definition
from rolltree.compare.report.page import versions
from rolltree.compare.sources import combined, fingerprint, reached, roots
from rolltree.compare.trace import Axis, LabError, Trace, load_trace, save_trace, write_json
from rolltree.recipe.recipe import Parts
from rolltree.task.data.flags import folder_name

Tick = Callable[[float, str], None]
"""Called while a run goes on with the cost so far (on the budget's axis) and what is being done."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all arms of a comparison share."""

    task: str
    budget: float
    level: int | None = None
    """Difficulty; None = the task's default."""
    model: str = "nano"
    axis: Axis = "decoded"
    eval_every: int = 5
    """Steps between evaluations on held-out items."""
    eval_items: int = 64
    eval_samples: int = 8
    """Samples per held-out item: the k of pass@k."""
    end_items: int | None = None
    """Held-out items of the first and the last evaluation; None = as many as of the others."""
    max_tokens: int | None = None
    """Most policy tokens of a path; None = the task's own limit."""

    def told(self) -> dict[str, Any]:
        """As plain values; a limit that is not set is left out, as in runs from before there was one."""
        out = asdict(self)
        return out if self.max_tokens is not None else {k: v for k, v in out.items() if k != "max_tokens"}


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that decides a run."""

    arm: Arm
    seed: int
    conditions: Conditions


class Runner(Protocol):
    """What makes runs. The lab has one that trains; others (simulated, remote) fit the same three calls."""

    def check(self, spec: Spec) -> None:
        """Refuse a spec that cannot be run, before anything is spent."""
        ...

    def made_of(self, spec: Spec) -> Iterable[Any]:
        """Objects, classes and functions whose code decides the result; what that uses is followed."""
        ...

    def run(self, spec: Spec, folder: Path, tick: Tick) -> Trace:
        """Make the run, or continue the unfinished one that stands in the folder."""
        ...


@runtime_checkable
class Composes(Protocol):
    """A runner that can say what an arm is made of."""

    def parts(self, spec: Spec) -> Parts:
        """The composition that the arm trains with."""
        ...


@dataclass(frozen=True)
class Shelf:
    """Finished runs by content: the same spec under the same code is never trained twice."""

    folder: Path
    runner: Runner
    _hashes: dict[frozenset[Definition], str] = field(default_factory=dict[frozenset[Definition], str], repr=False)

    def place(self, spec: Spec) -> Path:
        """Where a run with this content stands or will stand."""
        digest = hashlib.sha256(json.dumps(self._content(spec), sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / f"{folder_name(spec.arm.recipe)}-{folder_name(spec.conditions.task)}-s{spec.seed}-{digest}"

    def get(self, spec: Spec) -> Trace | None:
        """A finished run, under this arm's label."""
        path = self.place(spec) / "trace.json"
        if not path.is_file():
            return None
        found = load_trace(path)
        return replace(found, label=spec.arm.label)

    def make(self, spec: Spec, tick: Tick) -> Trace:
        """The finished run; one that was interrupted goes on where its runner can."""
        found = self.get(spec)
        if found is not None:
            return found
        place = self.place(spec)
        write_json(place / "spec.json", self._content(spec))
        made = self.runner.run(spec, place / "run", tick)
        if not made.rows:
            raise LabError(f"run {spec.arm.label!r}, seed {spec.seed}, measured nothing; give it a larger budget")
        save_trace(made, place / "trace.json")
        return made

    def _content(self, spec: Spec) -> dict[str, Any]:
        """All that decides a result. The label does not; the library versions do."""
        made = roots(tuple(self.runner.made_of(spec)))
        if made not in self._hashes:
            self._hashes[made] = combined(fingerprint(reached(made)))
        libraries = {name: value for name, value in versions() if name in ("torch", "numpy", "transformers", "machine")}
        whole = cast("dict[str, Any]", json.loads(json.dumps(asdict(spec))))
        del whole["arm"]["label"]
        whole["conditions"] = spec.conditions.told()
        files = files_of(spec.conditions)
        return {**whole, "code": self._hashes[made], "libraries": libraries, **({"files": files} if files else {})}


def files_of(conditions: Conditions) -> dict[str, str]:
    """Hashes of the files that task and model are made from, where their names are paths: another content, another run.

    A task may name data (`jsonl:items.jsonl`) or code (`trl:env.py:Env`), with or without knobs; a model is a folder.
    """
    rest = conditions.task.partition(":")[2]
    plain = rest.partition("?")[0]
    words = {rest, plain, plain.rpartition(":")[0], conditions.task.partition("?")[0]}
    # Knobs name files too: rewards, tools, held-out items, a system message; an agent may be named by its module.
    words |= {match[0] for match in _FILES.finditer(unquote(conditions.task))}
    words |= {file for match in _MODULE.finditer(unquote(conditions.task)) if (file := _module_file(match[1]))}
    named = [Path(name) for name in sorted(words) if name]
    model = Path(conditions.model)
    weights = sorted(p for p in model.rglob("*") if p.is_file()) if model.is_dir() else []
    return {str(p): _digest(p) for p in dict.fromkeys([*(p for p in named if _is_file(p)), *weights])}


_FILES = re.compile(r"[^\s\"'=&?,:\[\]]+\.\w+")

_MODULE = re.compile(r"(?<![\w./\\-])([A-Za-z_][\w.]*)(?=:[A-Za-z_])")


def _module_file(name: str) -> str:
    if name.endswith(".py"):
        return ""  # a file, which is found by its path
    try:
        found = find_spec(name)
    except (ImportError, ValueError):  # its package is not there
        found = None
    return found.origin if found is not None and found.has_location and found.origin else ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file system takes
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()[:16]
