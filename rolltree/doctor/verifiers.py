"""Verifiers, environments and engines that crash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import Fix, option, work
from rolltree.doctor.level import WINDOW
from rolltree.doctor.run import CheckedRun, leaves
from rolltree.doctor.series import NotChecked
from rolltree.metrics.usage import BREAKERS
from rolltree.rollout.failures import KIND
from rolltree.visible import shortened

MEND = work("mend what the message names, then go on with --resume")
_PLACE = re.compile(r"\((?P<file>[^()\s]+\.py)(?: line |:)(?P<line>\d+)(?: in [^()]*)?\)")
"""File and line in what is said of a failure, as a reward and as a verifier say them."""


@detector(
    "crashes",
    "Rollouts are lost because the verifier, the environment or the engine broke.",
    reads=("rollout/failed_share", "eval/failed", *(f"rollout/failed/{name}" for name in BREAKERS)),
    fixes=(MEND, option("cluster_workers", "more processes for verifiers, where these are too slow")),
    knobs={"most": "share of the leaves", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def crashes(run: CheckedRun, *, most: float = 0.01, worse: float = 0.1, window: int = 10) -> Iterator[Symptom]:
    """Failed nodes: counted and shown, never a reward of zero."""
    try:
        lost = run.series("rollout/failed_share")
    except NotChecked:
        measured = list(_when_measured(run, most, worse))
        if not measured:
            raise
        yield from measured
        return
    spell = lost.beyond(most, worse, window)
    if spell is None:
        yield from _when_measured(run, most, worse)
    if spell is not None:
        means = lost.trailing(window)
        worst = int(means.steps[np.flatnonzero(means.values == spell.value)[-1]])
        causes = {name: _mean(run, f"rollout/failed/{name}", window, worst) for name in BREAKERS}
        what = max(causes, key=lambda name: causes[name])
        said = f", most often the {what}" if causes[what] > 0 else ""
        told = [why for step, why in run.causes() if step >= spell.start]
        said += f', as in "{shortened(told[-1])}"' if told else ""
        yield Symptom(
            spell.start, spell.severity, f"{spell.value:.1%} of the rollouts failed{said} (limit {most:.1%})",
            {"rollout/failed_share": spell.value, **{f"rollout/failed/{n}": c for n, c in causes.items() if c},
             "most": most, "worse": worse},
            run.show(spell, lambda r: leaves(r, r.is_("status", "failed")[r.leaf])), spell.until, _mend(told),
        )  # fmt: skip


def _when_measured(run: CheckedRun, most: float, worse: float) -> Iterator[Symptom]:
    """What broke in the last evaluation, which may be all there is of a run."""
    step = max((int(line["step"]) for line in run.lines if line["kind"] == "eval"), default=-1)
    told = [line for line in run.lines if line["kind"] == KIND and int(line["step"]) == step]
    failed = [line for line in run.lines if line["kind"] == "eval" and line["step"] == step and line.get("eval/failed")]
    if not (told and failed):
        return
    lost = told[-1]["failed"] / told[-1]["leaves"]
    if lost > most:
        yield Symptom(
            step, "critical" if lost > worse else "warning",
            f"{lost:.1%} of the rollouts of the last evaluation failed, "
            f'as in "{shortened(told[-1]["why"])}" (limit {most:.1%})',
            {"eval/failed": float(told[-1]["failed"]), "most": most, "worse": worse},
            fixes=_mend([str(told[-1]["why"])]),
        )  # fmt: skip


def _mend(told: Sequence[str]) -> tuple[Fix, ...]:
    """Where a failure names a file and a line, that these are to be mended; else nothing of its own."""
    found = _PLACE.search(told[-1]) if told else None
    return (work(f"mend {found['file']} line {found['line']}, then go on with --resume"),) if found else ()


def _mean(run: CheckedRun, name: str, window: int, step: int) -> float:
    """The trailing mean of a cause at a step; 0 where no event names causes (forests of other programs)."""
    try:
        means = run.series(name).trailing(window)
    except NotChecked:
        return 0.0
    found = means.values[means.steps == step]
    return float(found[0]) if len(found) else 0.0
