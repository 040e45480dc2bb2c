"""Verifiers, environments and engines that crash."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import part
from rolltree.doctor.level import WINDOW
from rolltree.doctor.run import CheckedRun, leaves
from rolltree.doctor.series import NotChecked
from rolltree.metrics.usage import BREAKERS
from rolltree.rollout.failures import KIND
from rolltree.visible import shortened


@detector(
    "crashes",
    "Rollouts are lost because the verifier, the environment or the engine broke.",
    reads=("rollout/failed_share", "eval/failed", *(f"rollout/failed/{name}" for name in BREAKERS)),
    fixes=(part("rolltree.generate.patience:Patience.tries", "more attempts"),
            part("rolltree.generate.patience:Patience.verify_seconds", "more time for the verifier"),
            part("rolltree.generate.patience:Patience.step_seconds", "more time for the environment")),
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
            run.show(spell, lambda r: leaves(r, r.is_("status", "failed")[r.leaf])), spell.until,
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
        )  # fmt: skip


def _mean(run: CheckedRun, name: str, window: int, step: int) -> float:
    """The trailing mean of a cause at a step; 0 where no event names causes (forests of other programs)."""
    try:
        means = run.series(name).trailing(window)
    except NotChecked:
        return 0.0
    found = means.values[means.steps == step]
    return float(found[0]) if len(found) else 0.0
