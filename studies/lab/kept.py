"""Finished runs as lines of files in the repository: tables and evidence may grow over many sittings and machines.

Of a run its evaluations, its costs, its counter, the means of what comparisons are about and what each held-out item
got are kept, some five kilobytes. A kept run is used where everything that decided it is the same, code and libraries
included; `counted` says how many are not.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from rolltree.compare.definitions import ROOT
from rolltree.compare.names import COMPARED, COSTS, PER_LEAF, held_out
from rolltree.compare.runner import Shelf, Spec, Tick
from rolltree.compare.trace import AXES, LabError, Trace, TraceTally
from rolltree.metrics.log import read_lines
from rolltree.recipe.registry import counter_of
from rolltree.task.data.flags import folder_name
from rolltree.tree.store.atomic import naming

KEPT = ROOT.parent / "studies" / "kept"
"""One file for each task; a checkout has it."""


@dataclass(frozen=True)
class KeptShelf(Shelf):
    """A shelf that also finds the runs kept in the repository, and can keep one there."""

    kept: Path = KEPT
    _lines: dict[Path, dict[str, Mapping[str, Any]]] = field(
        default_factory=dict[Path, dict[str, Mapping[str, Any]]], repr=False
    )

    def get(self, spec: Spec) -> Trace | None:
        """A finished run of this machine, or a kept one; both under this arm's label."""
        found = super().get(spec)
        if found is not None:
            return found
        line = self._runs(self._file(spec)).get(self.place(spec).name)
        return None if line is None else replace(_trace(line), label=spec.arm.label)

    def make(self, spec: Spec, tick: Tick) -> Trace:
        """The finished run, kept where it was made."""
        made = super().make(spec, tick)
        self.keep(spec, made)
        return made

    def beside(self, spec: Spec, made: Trace) -> Mapping[str, float]:
        """More costs of a run than its rows tell."""
        return {}

    def keep(self, spec: Spec, made: Trace) -> None:
        """Write a finished run into the repository, where it is not there yet."""
        path, name = self._file(spec), self.place(spec).name
        if name in self._runs(path):
            return
        counter = counter_of(spec.arm.recipe)
        line = {
            "kind": "run", "name": name, "label": made.label, "spec": self._content(spec), "seed": made.seed,
            "rows": slim(made, () if counter is None else (counter.metric,), self.beside(spec, made)),
            "items": _tallies(made.items), "first": _tallies(made.first),
        }  # fmt: skip
        self._append(path, line)

    def counted(self, specs: Iterable[Spec]) -> tuple[int, int]:
        """How many kept runs ask what these specs ask: made by this code and these libraries, and by others."""
        mine = other = 0
        asked: dict[Path, set[str]] = {}
        for spec in specs:
            path, name = self._file(spec), self.place(spec).name
            lines = self._runs(path)
            if path not in asked:
                asked[path] = {_question(line["spec"]) for line in lines.values()}
            mine += name in lines
            other += name not in lines and _question(self._content(spec)) in asked[path]
        return mine, other

    def line(self, spec: Spec) -> dict[str, Any] | None:
        """What is kept of a run of this code."""
        found = self._runs(self._file(spec)).get(self.place(spec).name)
        return None if found is None else dict(found)

    def elsewhere(self, spec: Spec) -> dict[str, Any] | None:
        """What is kept of a run that asks the same, made by other code or libraries; the newest of several."""
        asked = _question(self._content(spec))
        same = [line for line in self._runs(self._file(spec)).values() if _question(line["spec"]) == asked]
        return dict(same[-1]) if same else None

    def take_over(self, spec: Spec, repeated: Spec) -> None:
        """Let a run of other code stand for this one, because `repeated`, a run of its kind, came out the same."""
        line = self.elsewhere(spec)
        if line is None:
            raise LabError(f"no run of {spec.arm.label!r}, seed {spec.seed}, is kept from other code")
        stands = {"name": self.place(spec).name, "spec": self._content(spec)}
        why = {"made_by": line["spec"]["code"], "repeated": self.place(repeated).name}
        self._append(self._file(spec), {**line, **stands, "taken_over": why})

    def _file(self, spec: Spec) -> Path:
        return self.kept / f"{folder_name(spec.conditions.task)}.jsonl"

    def _runs(self, path: Path) -> dict[str, Mapping[str, Any]]:
        """Lines of runs by the name of their place; item ids, which many share, are put in."""
        if path not in self._lines:
            lines = [cast("dict[str, Any]", line) for line in read_lines(path)] if path.is_file() else []
            ids = {line["digest"]: line["ids"] for line in lines if line["kind"] == "items"}
            self._lines[path] = {
                line["name"]: {**line, "items": _named(line["items"], ids), "first": _named(line["first"], ids)}
                for line in lines if line["kind"] == "run"
            }  # fmt: skip
        return self._lines[path]

    def _append(self, path: Path, line: Mapping[str, Any]) -> None:
        """Write a run, and before it the ids of its items where no run had them yet. Several studies may write."""
        self._lines[path][line["name"]] = {**line}
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming(path), path.open("a+", encoding="utf-8") as sink:
            fcntl.flock(sink, fcntl.LOCK_EX)
            sink.seek(0)
            told = [json.loads(one) for one in sink]
            if line["name"] in {one["name"] for one in told if one["kind"] == "run"}:
                return  # another study made the same run meanwhile
            known = {one["digest"] for one in told if one["kind"] == "items"}
            for tallies in (line["items"], line["first"]):
                ids = tallies["ids"]
                if (digest := _digest(ids)) not in known:
                    sink.write(json.dumps({"kind": "items", "digest": digest, "ids": ids}) + "\n")
                    known.add(digest)
            short = {k: {**line[k], "ids": _digest(line[k]["ids"])} for k in ("items", "first")}
            sink.write(json.dumps({**line, **short}) + "\n")


def slim(trace: Trace, counters: Sequence[str], beside: Mapping[str, float]) -> list[dict[str, float]]:
    """The evaluations, and one last row with what the steps spent in all and the means of the counters and of what
    comparisons are about; a counter that is a cost too keeps its value of every step, because its sum and its mean are
    both asked for."""
    rows = [{k: v for k, v in row.items() if k in AXES or held_out(k)} for row in trace.evaluations]
    last = {axis: trace.cost(axis) for axis in AXES}
    both = set(counters) & set(COSTS)
    last |= {name: total for name in COSTS if name not in both and (total := trace.total(name)) is not None}
    means = dict.fromkeys((*COMPARED, *PER_LEAF, *counters))
    last |= {name: mean for name in means if name not in both and (mean := trace.mean(name)) is not None}
    return [*rows, *({name: row[name]} for name in both for row in trace.rows if name in row), {**last, **beside}]


def _tallies(of: Mapping[str, TraceTally]) -> dict[str, Any]:
    ids = sorted(of)
    return {"ids": ids, "samples": [of[i].samples for i in ids], "right": [of[i].right for i in ids]} | (
        {"samples": of[ids[0]].samples} if len({t.samples for t in of.values()}) == 1 else {}
    )


def _named(told: Mapping[str, Any], ids: Mapping[str, list[str]]) -> dict[str, Any]:
    return {**told, "ids": ids[told["ids"]]}


def _trace(line: Mapping[str, Any]) -> Trace:
    def tallies(told: Mapping[str, Any]) -> dict[str, TraceTally]:
        samples = told["samples"]
        each = samples if isinstance(samples, list) else [samples] * len(told["ids"])
        return {i: TraceTally(n, r) for i, n, r in zip(told["ids"], each, told["right"], strict=True)}

    return Trace(str(line["label"]), int(line["seed"]), tuple(line["rows"]), tallies(line["items"]), "",
                 tallies(line["first"]))  # fmt: skip


def _question(content: Mapping[str, Any]) -> str:
    """A spec without the code and the libraries it was run with."""
    return json.dumps({k: v for k, v in content.items() if k not in ("code", "libraries")}, sort_keys=True)


def _digest(ids: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:12]
