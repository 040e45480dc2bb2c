"""The reference of every finding, written from the detectors themselves: `python -m rolltree.doctor.examination`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolltree.doctor.detector import Detector, detectors
from rolltree.doctor.finding import SEVERITIES, Finding, from_json
from rolltree.doctor.run import CheckedRun, DoctorError, open_run, settings_of
from rolltree.doctor.series import NotChecked
from rolltree.errors import RolltreeError
from rolltree.metrics.log import forget_after, read_lines, read_metrics
from rolltree.rollout.underway import KIND, failures
from rolltree.tree.store.atomic import naming

if TYPE_CHECKING:
    from rolltree.training.loop import RunEvent

# Every detector on one run: findings, what is healthy, and what could not be checked.


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


# The doctor during training: a listener that checks the log every few steps and says what has appeared or gone.
#
# It writes `findings.jsonl` into the run folder: one JSON object a line with the fields of `Finding` (`step`, `name`,
# `severity`, `message`, `numbers`, `nodes` as a list of {step, tree, node}, `fix`, `until`, `status`). A line with the
# status "open" says that a finding appeared, or got graver; one with "gone" that it stands no more.

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
        found = [from_json(line) for line in read_lines(path)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DoctorError(
            f"{path} holds something else than findings ({error}); delete it, they are found again"
        ) from None
    return list({f.name: f for f in found}.values())


HEAD = """\
# Findings of the doctor

Written from the code by `python -m rolltree.doctor.examination`; [how to use the doctor](howto/doctor.md).

Every threshold is a knob: `--set NAME.KNOB=VALUE`. Means are over the last `window` steps, or over all where there are
fewer; a finding is a *warning* beyond the first threshold, *critical* beyond `worse`, and a *note* when it stood and is
over. Detectors marked *live* are watched during training.
"""


def reference() -> str:
    """The page."""
    rows = ["| finding | what is wrong |", "|---|---|"]
    rows += [f"| [{d.name}](#{d.name}) | {d.about} |" for d in detectors().values()]
    return "\n".join([HEAD, *rows, "", *(_section(d) for d in detectors().values())])


def _section(d: Detector) -> str:
    numbers = ", ".join(f"`{name}`" for name in d.reads)
    lines = [f"## {d.name}", "", d.about, ""]
    if d.why:
        lines += [d.why, ""]
    lines += [f"Reads {numbers}{' · live' if d.live else ' · saved forests only'}.", ""]
    lines += ["| knob | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {value} | {d.knobs[name]} |" for name, value in d.thresholds.items()]
    return "\n".join([*lines, "", "Suggested fixes:", "", *(f"- {fix}" for fix in d.fixes), ""])


if __name__ == "__main__":
    Path("docs/doctor.md").write_text(reference(), encoding="utf-8")
