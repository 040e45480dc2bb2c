"""The table of a board: every arm with its accuracy, its verdict and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rolltree.lab.compare import Comparison
from rolltree.lab.contrast import Contrast, Measure, measures, reach_words, reaches, run_means
from rolltree.lab.report import duration, shown
from rolltree.lab.stats import TargetReach
from rolltree.lab.trace import Trace

ENOUGH = 3
"""Seeds from which on an interval is given; of fewer the lowest and the highest."""
HEAD = (
    "arm", "pass@1", "against {base}", "pass@{k}", "pass@1 on the way", "tokens to {target}", "steps", "seconds",
    "steps in all",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoardColumn:
    """A number of training that a board shows beside those that all boards show: its mean over steps and seeds."""

    head: str
    metric: str
    kind: Literal["share", "number", "count", "seconds"] = "share"


def table(result: Comparison, also: Sequence[BoardColumn]) -> str:
    """Arms by pass@1 below the baseline, with verdicts, costs and the board's own columns."""
    on = result.conditions
    k = f"pass@{on.eval_samples}"
    target = shown(result.target, "share")
    head = [h.format(base=result.arms[0].label, k=on.eval_samples, target=target) for h in HEAD]
    head[-1:-1] = [column.head for column in also]
    found = {c.subject: c for c in result.contrasts}
    theirs = _at(result, result.arms[0].label, "pass@1")
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    ranked = sorted(result.arms[1:], key=lambda a: -_at(result, a.label, "pass@1").interval.estimate)
    for arm in (result.arms[0], *ranked):
        traces = result.of(arm.label)
        mine = _at(result, arm.label, "pass@1")
        tokens = reaches(traces, "pass@1", result.target, "decoded")
        steps = [TargetReach(float(steps_until(t, r.cost)), r.reached) for t, r in zip(traces, tokens, strict=True)]
        lines.append("| " + " | ".join([
            arm.label, *(_share(mine), _against(found.get(arm.label), mine, theirs)),
            *(_share(_at(result, arm.label, name)) for name in (k, "pass@1 area")),
            reach_words(tokens, lambda x: shown(x, "count")), reach_words(steps, lambda x: f"{x:.0f}"),
            reach_words(reaches(traces, "pass@1", result.target, "seconds"), duration),
            *(_mean(traces, column) for column in also),
            f"{np.mean([steps_until(t, t.cost('decoded')) for t in traces]):.0f}",
        ]) + " |")  # fmt: skip
    return "\n".join(lines)


def _mean(traces: Sequence[Trace], column: BoardColumn) -> str:
    found = run_means(traces, column.metric)
    return "–" if found is None else shown(found.interval.estimate, column.kind)


def _at(result: Comparison, label: str, metric: str) -> Measure:
    on = result.conditions
    return measures(result.of(label), metric, on.budget, on.axis, result.confidence)


def _share(measure: Measure) -> str:
    seen = [100 * v for v in measure.per_seed.values()]
    middle = f"{100 * measure.interval.estimate:.1f}"
    if len(seen) < ENOUGH:
        return f"{middle} ({min(seen):.1f}–{max(seen):.1f}) %" if len(seen) > 1 else f"{middle} %"
    return f"{middle} ± {50 * (measure.interval.high - measure.interval.low):.1f} %"


def _against(contrast: Contrast | None, mine: Measure, theirs: Measure) -> str:
    if contrast is None:
        return "–"
    e = contrast.effect
    if e.n < 2:
        return f"{100 * e.estimate:+.1f}"
    if e.n < ENOUGH:
        apart = [100 * (value - theirs.per_seed[seed]) for seed, value in mine.per_seed.items()]
        return f"{100 * e.estimate:+.1f} ({min(apart):+.1f} to {max(apart):+.1f})"
    return f"{100 * e.estimate:+.1f} ({100 * e.low:+.1f} to {100 * e.high:+.1f}), {contrast.outcome}"


def steps_until(trace: Trace, cost: float) -> int:
    """Training steps made until a cost; evaluations are rows of their own."""
    return sum("eval/pass@1" not in row and row["decoded"] <= cost for row in trace.rows)
