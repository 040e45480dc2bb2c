"""The doctor: pathologies of rollouts with their numbers, the nodes that show them, and suggested fixes.

    from rolltree.doctor import findings, examine, Monitor

    for finding in findings("runs/first"):
        print(finding.severity, finding.name, finding.message, finding.fix)

The symptoms are those of the diagnostic index of "Generate, Filter, Control, Replay" (arXiv 2605.02913) and of the
papers named beside each detector; thresholds are ours, stated, and knobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolltree.doctor.detector import Detector, detectors
    from rolltree.doctor.examination import Monitor, Report, examine, findings
    from rolltree.doctor.finding import Finding, Place
    from rolltree.doctor.run import CheckedRun, open_run

# Looked up on first use: the registry of detectors lists this package's modules.
_WHERE = {
    "Detector": "detector", "detectors": "detector", "Report": "examination",
    "examine": "examination", "findings": "examination",
    "Finding": "finding", "Place": "finding", "Monitor": "examination", "CheckedRun": "run", "open_run": "run",
}  # fmt: skip

__all__ = [
    "CheckedRun",
    "Detector",
    "Finding",
    "Monitor",
    "Place",
    "Report",
    "detectors",
    "examine",
    "findings",
    "open_run",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'rolltree.doctor' has no attribute {name!r}")
    return getattr(import_module(f"rolltree.doctor.{_WHERE[name]}"), name)
