"""What the doctor found in a run, with the nodes that show it: `findings.jsonl`, one finding per line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

from rolltree.analysis.source import RunSource, ViewError
from rolltree.tree.store.values import read_json


@dataclass(frozen=True)
class ShownPlace:
    """A node that shows a finding; the whole tree where the node is None."""

    step: int | None
    tree: str
    node: int | None


@dataclass(frozen=True)
class ShownFinding:
    """One finding of the doctor."""

    step: int | None
    name: str
    severity: str
    message: str
    numbers: dict[str, Any]
    nodes: tuple[ShownPlace, ...]
    fix: str


@dataclass(frozen=True)
class Findings:
    """All findings, or how to get them."""

    found: tuple[ShownFinding, ...]
    note: str
    """What to say where there are none."""

    def of_tree(self, step: int | None, tree: str) -> list[tuple[ShownFinding, list[int]]]:
        """The findings that name a tree, each with the nodes of it that show it."""
        out: list[tuple[ShownFinding, list[int]]] = []
        for finding in self.found:
            here = [p for p in finding.nodes if p.tree == tree and p.step in (step, None)]
            if here:
                out.append((finding, [p.node for p in here if p.node is not None]))
        return out


_ORDER = {"bad": 0, "error": 0, "critical": 0, "warning": 1, "warn": 1}


def findings(source: RunSource) -> Findings:
    """Read a run's findings, the gravest and latest first."""
    path = source.inside("findings.jsonl") if source.path.is_dir() else source.path.parent / "no-findings"
    if not path.is_file():
        way = f"rolltree doctor {source.path}"
        return Findings((), f"The doctor has not looked at {source.name} yet. Let it: {way}")
    latest: dict[str, ShownFinding] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], 1):
        if line.strip():
            finding = _finding(line, f"{path} line {number}")
            latest[finding.name] = finding
    out = list(latest.values())
    out.sort(key=lambda f: (_ORDER.get(f.severity, 2), -(f.step or 0)))
    return Findings(tuple(out), "" if out else f"The doctor found nothing wrong with {source.name}.")


GRAVE = ("bad", "error", "critical")


def badge(source: RunSource) -> tuple[str, str, str]:
    """How many findings a run has, how grave they are, and their names: what the first pages show of them."""
    if source.kind != "run" or not source.inside("findings.jsonl").is_file():
        return "–", "", "the doctor has not looked at it"
    try:
        found = findings(source).found
    except (ViewError, OSError) as error:
        return "?", "badge", str(error)
    if not found:
        return "none", "", "the doctor found nothing wrong"
    worst: dict[str, str] = {}
    for finding in found:  # the gravest first
        worst.setdefault(finding.name, finding.severity)
    counts = Counter(worst.values())
    first = next(iter(counts))
    kind = "grave" if first in GRAVE else "mild" if _ORDER.get(first, 2) == 1 else "note"
    return ", ".join(f"{n} {severity}" for severity, n in counts.items()), f"badge {kind}", ", ".join(worst)


def _finding(line: str, where: str) -> ShownFinding:
    try:
        row = cast("dict[str, Any]", read_json(line))
        step = row.get("step")
        places = tuple(
            ShownPlace(p.get("step", step), str(p["tree"]), None if p.get("node") is None else int(p["node"]))
            for p in row.get("nodes") or ()
        )
        over = row.get("status") == "gone"
        until = f" (over since step {row.get('until')})" if over else ""
        return ShownFinding(
            None if step is None else int(step), str(row["name"]), "note" if over else str(row.get("severity", "")),
            str(row.get("message", "")) + until, dict(row.get("numbers") or {}), places, str(row.get("fix") or ""),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ViewError(f"{where} is no finding ({error}); run the doctor again") from None
