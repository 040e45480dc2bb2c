"""The doctor during training: a listener that checks the log every few steps and says what has appeared or gone.

It writes `findings.jsonl` into the run folder: one JSON object a line with the fields of `Finding` (`step`, `name`,
`severity`, `message`, `numbers`, `nodes` as a list of {step, tree, node}, `fix`, `until`, `status`). A line with the
status "open" says that a finding appeared, or got graver; one with "gone" that it stands no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rolltree.doctor.detector import detectors
from rolltree.doctor.examination import Report, examine
from rolltree.doctor.finding import SEVERITIES, Finding, from_json
from rolltree.doctor.run import CheckedRun, DoctorError, open_run, settings_of
from rolltree.errors import RolltreeError
from rolltree.metrics import old_names
from rolltree.metrics.log import forget_after, read_lines, read_metrics
from rolltree.rollout.failures import KIND, failures
from rolltree.train.loop import RunEvent
from rolltree.tree.atomic import naming

FILE = "findings.jsonl"


class Monitor:
    """Listens to a run: `rolltree.train(..., listen=Monitor(out))`. What it answers is printed and logged."""

    def __init__(
        self, folder: Path | str, *, every: int = 10, thresholds: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        if every < 1:
            raise DoctorError(f"every={every} makes no sense; give a number of steps, or leave the monitor out")
        self.folder = Path(folder)
        self.every = every
        self.standing: dict[str, Finding] = {}
        """Findings that have appeared and not gone, by name."""
        self._thresholds = dict(thresholds or {})
        self._lines: list[dict[str, Any]] = []

    def __call__(self, live: RunEvent) -> str | None:
        """Take note of something that happened; check when it is time."""
        if live.kind == "start":
            self._begin(live.step)
        elif live.kind in ("trained", "evaluated"):
            kind = "train" if live.kind == "trained" else "eval"
            self._lines.append({"kind": kind, "step": live.step, **live.numbers})
        if live.kind in ("grown", "evaluated"):
            failed, _, why = failures(live.trees)
            if failed:
                self._lines.append({"kind": KIND, "step": live.step, "why": why})
        due = live.kind == "trained" and live.step % self.every == 0
        return self._check(live.step) if due or live.kind == "stop" else None

    def _begin(self, step: int) -> None:
        """Go on where a resumed run goes on: with the lines up to its checkpoint."""
        log = self.folder / "metrics.jsonl"
        self._lines = [line for line in read_metrics(log) if line["step"] <= step] if log.exists() else []
        path = self.folder / FILE
        forget_after(path, step)
        path.touch()
        self.standing = {f.name: f for f in read_findings(path) if f.status == "open"}

    def _check(self, step: int) -> str | None:
        run = CheckedRun(self.folder.name, self._lines, settings=settings_of(self.folder))
        said: list[str] = []
        for seen in changes(self.standing, examine(run, self._thresholds, live=True), step):
            finding = self._located(seen) if seen.status == "open" else seen
            self._write([finding])
            if finding.status == "gone":
                del self.standing[finding.name]
                said.append(f"gone: {finding.name}")
            else:
                self.standing[finding.name] = finding
                fixes = f". Suggested fixes: {finding.fix}" if finding.fix else ""
                said.append(f"{finding.severity}: {finding.name}: {finding.message}{fixes}")
        return "\n".join(said) or None

    def _located(self, finding: Finding) -> Finding:
        """The finding with nodes of the forests saved so far; without any where none can be read."""
        try:
            saved = open_run(self.folder).forests
        except RolltreeError:
            return finding
        run = CheckedRun(self.folder.name, self._lines, saved)
        found = detectors()[finding.name].findings(run, **self._thresholds.get(finding.name, {}))
        nodes = found[0].nodes if isinstance(found, list) and found else ()
        return replace(finding, nodes=nodes)

    def _write(self, found: Iterable[Finding]) -> None:
        write_findings(self.folder, found)


def changes(standing: Mapping[str, Finding], report: Report, step: int) -> list[Finding]:
    """What a report changes of the findings that stand: new or graver ones, and those that stand no more."""
    now = {f.name: f for f in report.standing}
    rank = SEVERITIES.index
    out = [
        replace(finding, step=step)
        for name, finding in now.items()
        if name not in standing or rank(finding.severity) > rank(standing[name].severity)
    ]
    over = [n for n in standing if n not in now and n not in report.not_checked]
    return out + [replace(standing[n], step=step, status="gone", until=step, nodes=()) for n in over]


def write_findings(folder: Path, found: Iterable[Finding]) -> None:
    """Add lines to a run's findings."""
    path = folder / FILE
    with naming(path), path.open("a", encoding="utf-8") as sink:
        sink.writelines(json.dumps(finding.as_json()) + "\n" for finding in found)


def note_report(folder: Path, report: Report, step: int) -> None:
    """Let a run's findings say what a report says, so that its pages show the same."""
    path = folder / FILE
    path.touch()
    known = {f.name: f for f in read_findings(path)}
    over = [replace(f, status="gone") for f in report.findings if f.until is not None and f.name not in known]
    standing = {name: f for name, f in known.items() if f.status == "open"}
    write_findings(folder, [*over, *changes(standing, report, step)])


def read_findings(path: Path) -> list[Finding]:
    """The latest line of each finding in a findings.jsonl."""
    try:
        found = [from_json(old_names.finding(line)) for line in read_lines(path)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DoctorError(
            f"{path} holds something else than findings ({error}); delete it, they are found again"
        ) from None
    return list({f.name: f for f in found}.values())
