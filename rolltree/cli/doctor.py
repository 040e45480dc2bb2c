"""`rolltree doctor`: what is wrong with a run's rollouts, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from rolltree.cli.common import console, emit, first_name, grid, kept, parse
from rolltree.compare.arms import setting
from rolltree.doctor.detector import detectors, thresholds
from rolltree.doctor.examination import Report, examine
from rolltree.doctor.finding import SEVERITIES, Finding
from rolltree.doctor.run import DoctorError, open_run
from rolltree.errors import unknown
from rolltree.metrics.log import read_metrics
from rolltree.training.lock import held
from rolltree.tree.store.atomic import check_writable, new_file

ABOUT = """Say what is wrong with the rollouts of a run, with the numbers, the nodes that show it and suggested fixes.

  rolltree doctor runs/first
  rolltree doctor runs/first --set zero_variance.most=0.8 --json
  rolltree doctor nodes.jsonl           rollouts of any program
  rolltree doctor --list                every finding with its thresholds

Exit code 0: nothing stands against the run; 1: a finding of --fail-on or graver stands; 2: bad input.
Findings that are over are notes; what lacks its data is listed as not checked.
"""
_STYLE = {"note": "dim", "warning": "yellow", "critical": "bold red"}


@dataclass(frozen=True)
class DoctorArguments:
    """What to look at."""

    run: Path | None = None
    """A run folder, a folder of saved forests, or a file of nodes in the interchange format."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A threshold, as DETECTOR.KNOB=VALUE; may be given several times."""
    only: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Let this detector look and no other; may be given several times."""
    fail_on: Literal["note", "warning", "critical"] = "warning"
    """The least severity that makes the exit code 1."""
    model: str = ""
    """Model whose tokenizer reads the texts; the run's own when left out."""
    out: Path | None = None
    """Also write the findings here, one JSON object a line, as training writes findings.jsonl."""
    list: bool = False
    """List the detectors and their thresholds instead."""
    json: bool = False
    """Print one JSON document and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Parse, examine, say what was found."""
    name, rest = first_name(arguments)
    asked = parse(DoctorArguments, ["--run", name, *rest] if name else rest, "doctor", ABOUT)
    if asked.list:
        return _list(asked.json)
    if asked.run is None:
        raise DoctorError("which run? rolltree doctor RUN; give a run folder, a folder of forests or a file of nodes")
    for detector in asked.only:
        if detector not in detectors():
            raise unknown("detector", detector, detectors(), "rolltree doctor --list shows them")
    kept(asked.run, asked.out)
    if asked.out is not None:
        check_writable(asked.out)
    report = examine(open_run(asked.run, asked.model), thresholds(map(setting, asked.set)), only=asked.only)
    if not (asked.set or asked.only):
        _note(asked.run, report)
    if asked.out is not None:
        with new_file(asked.out, overwrite=True) as sink:
            sink.writelines(json.dumps(f.as_json()) + "\n" for f in report.findings)
    if asked.json:
        emit(asdict(report))
    else:
        show(report, console())
    least = SEVERITIES.index(asked.fail_on)
    return int(any(SEVERITIES.index(f.severity) >= least for f in report.findings))


def _note(run: Path, report: Report) -> None:
    """Under the stated thresholds, the run's own pages show what stands here; one that trains is left to itself."""
    log = run / "metrics.jsonl"
    if not log.is_file() or held(run):
        return
    from rolltree.doctor.examination import note_report  # it loads torch, which --help does not need

    steps = [int(line["step"]) for line in read_metrics(log)]
    with suppress(OSError):  # of a run that may only be read, or on a disk that is full
        note_report(run, report, max(steps, default=0))


def show(report: Report, out: Console) -> None:
    """Print a report for people."""
    count, standing = len(report.findings), len(report.standing)
    over = f" ({count - standing} of them over)" if count > standing else ""
    found = "1 finding" if count == 1 else f"{count or 'no'} findings"
    out.print(f"{report.run}: {found}{over}, {len(report.healthy)} checks healthy, "
              f"{len(report.not_checked)} not checked", highlight=False)  # fmt: skip
    for finding in report.findings:
        _show(finding, out)
    if report.not_checked:
        out.print("\nnot checked", style="bold")
        for name, why in report.not_checked.items():
            out.print(Text(f"  {name}: {why}"))


def summary(run: Path, settings: Mapping[str, Mapping[str, Any]] | None = None) -> list[dict[str, str]]:
    """What stands against a run at its end, a row each: the gravest first, with the first of its suggested fixes."""
    return [
        {"finding": f.name, "severity": f.severity, "what": f.message, "suggested fix": f.fix.partition("; ")[0]}
        for f in examine(run, settings).standing
    ]


def _show(finding: Finding, out: Console) -> None:
    over = finding.until is not None
    when = f"steps {finding.step} to {finding.until}, over now" if over else f"since step {finding.step}"
    out.print()
    out.print(Text.assemble((finding.severity, _STYLE[finding.severity]), " ", (finding.name, "bold"), f", {when}"))
    out.print(Text(f"  {finding.message}"))
    if finding.nodes:
        shown = ", ".join(f"step {p.step} {p.tree}/{p.node}" for p in finding.nodes[:4])
        more = f" and {len(finding.nodes) - 4} more" if len(finding.nodes) > 4 else ""
        out.print(Text(f"  see: {shown}{more}", style="cyan"))
    for fix in filter(None, finding.fix.split("; ")):
        out.print(Text(f"  suggested fix: {fix}", style="green"))


def _list(as_json: bool) -> int:
    known = detectors().values()
    if as_json:
        emit([
            {"name": d.name, "about": d.about, "thresholds": d.thresholds, "fixes": [str(x) for x in d.fixes],
             "reads": list(d.reads), "live": d.live} for d in known
        ])  # fmt: skip
        return 0
    rows = [
        {"finding": d.name, "what is wrong": d.about,
         "thresholds": " ".join(f"{k}={v}" for k, v in d.thresholds.items())} for d in known
    ]  # fmt: skip
    console().print(grid("findings", rows))
    return 0
