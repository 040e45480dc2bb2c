"""What the doctor says: a finding with the numbers behind it, the nodes that show it and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast, get_args

from rolltree.doctor.fix import Fix

Severity = Literal["note", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""note: it was so and is over; warning: beyond the threshold; critical: beyond the second one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node that shows a finding: the step of its forest (0 outside runs), its tree and its id there."""

    step: int
    tree: str
    node: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A pathology of a run."""

    step: int
    """The step at which it appeared (in a live log: at which that was noticed)."""
    name: str
    severity: Severity
    message: str
    """What is wrong, in words, with the number and its threshold."""
    numbers: Mapping[str, float]
    """What was measured, and the thresholds it was held against."""
    nodes: tuple[Place, ...] = ()
    """Nodes of saved forests that show it; empty where none were saved."""
    fix: str = ""
    """The recipes and knobs that address it."""
    until: int | None = None
    """The last step at which it stood; None while it stands."""
    status: Literal["open", "gone"] = "open"
    """In a live log a line with "gone" ends the finding of that name."""

    def as_json(self) -> dict[str, Any]:
        """A line of findings.jsonl."""
        return asdict(self)


def from_json(line: Mapping[str, Any]) -> Finding:
    """The finding a line of findings.jsonl holds."""
    fields = dict(line)
    nodes = cast("list[dict[str, Any]]", fields.pop("nodes", []))
    if fields.get("severity") not in SEVERITIES:
        raise ValueError(f"severity {fields.get('severity')!r:.80} is none of {', '.join(SEVERITIES)}")
    return Finding(**fields, nodes=tuple(Place(**node) for node in nodes))


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a detector returns; the registry adds its name and fixes."""

    step: int
    severity: Severity
    message: str
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    nodes: tuple[Place, ...] = ()
    until: int | None = None
    fixes: tuple[Fix, ...] = ()
    """What addresses this one better than the detector's own; none = those."""
