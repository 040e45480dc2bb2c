"""Every detector on one run: findings, what is healthy, and what could not be checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolltree.doctor.detector import detectors
from rolltree.doctor.finding import SEVERITIES, Finding
from rolltree.doctor.run import CheckedRun, open_run
from rolltree.doctor.series import NotChecked


@dataclass(frozen=True, slots=True)
class Report:
    """What the doctor has to say about a run."""

    run: str
    findings: tuple[Finding, ...]
    """The gravest first."""
    healthy: tuple[str, ...]
    """Detectors that looked and found nothing."""
    not_checked: Mapping[str, str]
    """Detectors that lack their data, and what is lacking."""

    @property
    def standing(self) -> tuple[Finding, ...]:
        """Findings that are not over."""
        return tuple(f for f in self.findings if f.until is None)


def examine(
    run: CheckedRun | Path | str, thresholds: Mapping[str, Mapping[str, Any]] | None = None, *,
    only: Collection[str] = (), live: bool = False,
) -> Report:  # fmt: skip
    """Let the detectors look at a run; `thresholds` by detector replace the stated ones."""
    seen = run if isinstance(run, CheckedRun) else open_run(run)
    found: list[Finding] = []
    healthy: list[str] = []
    lacking: dict[str, str] = {}
    for name, detector in detectors().items():
        if (only and name not in only) or (live and not detector.live):
            continue
        said = detector.findings(seen, **(thresholds or {}).get(name, {}))
        if isinstance(said, NotChecked):
            lacking[name] = str(said)
        elif said:
            found.extend(said)
        else:
            healthy.append(name)
    found.sort(key=lambda f: (-SEVERITIES.index(f.severity), f.step, f.name))
    return Report(seen.name, tuple(found), tuple(healthy), lacking)


def findings(run: CheckedRun | Path | str) -> list[Finding]:
    """What is wrong with a run, the gravest first, under the stated thresholds."""
    return list(examine(run).findings)
