"""The numbers of a comparison: each arm's measures over seeds, and each arm against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.compare.curves import area, endpoint
from rolltree.compare.names import HELD_OUT, held_out, of_rollouts, short_names
from rolltree.compare.stats import (
    Asked,
    Direction,
    Interval,
    Outcome,
    TargetReach,
    corrected,
    describe,
    differences,
    first_reach,
    median_reach,
    nested_interval,
    sign_flip_test,
    t_interval,
)  # fmt: skip
from rolltree.compare.trace import Axis, LabError, Trace
from rolltree.errors import unknown


@dataclass(frozen=True)
class Measure:
    """One number of an arm: over its seeds, with a t interval of the mean."""

    per_seed: Mapping[int, float]
    interval: Interval


@dataclass(frozen=True)
class Contrast:
    """One arm against the baseline on one metric, paired by seed."""

    subject: str
    baseline: str
    metric: str
    effect: Interval
    """Its ends stand where Holm's procedure puts them, so that several comparisons together err as seldom as one."""
    p: float
    """One-sided paired t test of what the verdict *holds* rejects: that there is no gain."""
    p_holm: float
    p_bh: float
    p_sign_flip: float
    outcome: Outcome
    words: str


def measures(traces: Sequence[Trace], metric: str, budget: float, axis: Axis, level: float = 0.95) -> Measure:
    """A held-out metric at the budget (mean of the last evaluations), or with " area" its average on the way there; of
    rollouts the run's mean."""
    name, wants_area = metric.removesuffix(" area"), metric.endswith(" area")
    if not held_out(metric):
        found = run_means(traces, metric, level)
        if found is None:
            raise LabError(
                f"not every run of {traces[0].label!r} measured {metric!r}; it has {', '.join(traces[0].metrics())}"
            )
        return found
    if metric.endswith(HARD):
        return _hard(traces, level)
    per_seed = {t.seed: (area if wants_area else endpoint)(t, name, budget, axis) for t in traces}
    return Measure(per_seed, t_interval(list(per_seed.values()), level))


HARD = " hard"
"""Behind pass@1: on the third of the held-out items that the first policy solved least."""


def _hard(traces: Sequence[Trace], level: float) -> Measure:
    found = {t.seed: value for t in traces if (value := t.hard()) is not None}
    if len(found) < len(traces):
        raise LabError(f"the runs of {traces[0].label!r} have no tallies of single items; make them again")
    return Measure(found, t_interval(list(found.values()), level))


def check_metric(metric: str, samples: int) -> str:
    """The metric that was asked for, with k put in; one that no run could have is refused before anything is spent."""
    known = [f"{name}{what}" for name in ("pass@1", "pass@k", f"pass@{samples}") for what in ("", " area")]
    known.append(f"pass@1{HARD}")
    if metric in HELD_OUT:
        return metric
    asked = metric.removeprefix("eval/")
    if asked not in known and not of_rollouts(metric):
        raise unknown("metric", metric, [*known, *HELD_OUT, *short_names()])
    return asked.replace("pass@k", f"pass@{samples}")


def run_means(traces: Sequence[Trace], metric: str, level: float = 0.95) -> Measure | None:
    """A metric of the training rollouts averaged over each run; None when a run did not measure it."""
    per_seed = {t.seed: t.mean(metric) for t in traces}
    if any(v is None for v in per_seed.values()):
        return None
    values = {seed: float(v) for seed, v in per_seed.items() if v is not None}
    return Measure(values, t_interval(list(values.values()), level))


def flat_label(label: str) -> str:
    """What the flat control of an arm is called."""
    return f"{label} flat"


def contrasts(
    arms: Mapping[str, Measure],
    baseline: str,
    metric: str,
    *,
    direction: Direction = "higher",
    least: float = 0.0,
    level: float = 0.95,
    unit: str = "",
) -> list[Contrast]:
    """Every other arm against the baseline, and each tree against its flat control too, over the seeds both have."""
    sides = [(label, baseline) for label in arms if label != baseline]
    sides += [(label, flat) for label in arms if (flat := flat_label(label)) in arms and flat != baseline]
    pairs = [_paired(arms[mine], arms[theirs], mine, theirs) for mine, theirs in sides]
    asked = [Asked(tuple(differences(*pair).tolist()), direction, least, "arms") for pair in pairs]
    out: list[Contrast] = []
    for (label, base), pair, found in zip(sides, pairs, corrected(asked, level), strict=True):
        said = describe(
            found.effect, subject=label, baseline=base, metric=metric, direction=direction, least=least, unit=unit
        )  # fmt: skip
        flip = sign_flip_test(*pair)
        out.append(Contrast(
            label, base, metric, found.effect, found.p, found.p_holm, found.p_bh, flip, said.outcome, said.words
        ))  # fmt: skip
    return out


def by_items(ours: Sequence[Trace], theirs: Sequence[Trace], level: float = 0.95) -> Interval | None:
    """The difference in pass@1 at the last evaluation, paired by seed and held-out item: seeds are resampled, and the
    items within each. None where the runs kept no results of single items."""
    other = {t.seed: t.items for t in theirs}
    pairs = [(t.items, other.get(t.seed, {})) for t in ours]
    groups = [[a[i].rate - b[i].rate for i in sorted(a.keys() & b.keys())] for a, b in pairs]
    groups = [group for group in groups if group]
    return nested_interval(groups, level) if groups else None


def reaches(traces: Sequence[Trace], metric: str, target: float, axis: Axis) -> list[TargetReach]:
    """What each seed paid until the curve reached the target."""
    return [first_reach(*t.curve(metric, axis), target) for t in traces]


def common_target(arms: Mapping[str, Sequence[Trace]], metric: str, axis: Axis = "decoded") -> float:
    """A target nobody chose by hand: half of the largest gain of any arm's mean, from the mean start of all."""
    starts = [float(t.curve(metric, axis)[1][0]) for traces in arms.values() for t in traces]
    best = max(float(np.mean([t.curve(metric, axis)[1][-1] for t in traces])) for traces in arms.values())
    start = float(np.mean(starts))
    return start + (best - start) / 2


def reach_words(runs: Sequence[TargetReach], show: Callable[[float], str]) -> str:
    """The median cost, or how many got there when fewer than half did."""
    middle = median_reach(runs)
    there = sum(r.reached for r in runs)
    if middle is None:
        return f"not reached ({there} of {len(runs)})"
    return show(middle)


def _paired(a: Measure, b: Measure, subject: str, baseline: str) -> tuple[list[float], list[float]]:
    seeds = sorted(a.per_seed.keys() & b.per_seed.keys())
    if not seeds:
        raise LabError(f"{subject} and {baseline} have no seed in common; run both with the same seeds")
    return [a.per_seed[s] for s in seeds], [b.per_seed[s] for s in seeds]
