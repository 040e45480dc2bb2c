"""A comparison as a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rolltree.compare.compare import Comparison
from rolltree.compare.contrast import Measure, by_items, measures, reach_words, reaches, run_means
from rolltree.compare.curves import FEW, band, endpoint
from rolltree.compare.names import COSTS, cost_name, held_out, is_share, less_is_better, row_name
from rolltree.compare.report import Chart, Page, PlotSeries, ReportFinding, ReportTable, ReportTree, duration, shown
from rolltree.compare.stats import Interval
from rolltree.compare.stats.verdict import GAIN
from rolltree.compare.trace import AXIS_NAMES, Trace
from rolltree.compare.void import COLLAPSED
from rolltree.recipe.acted import Acted, acted
from rolltree.recipe.registry import counter_of

ROLLOUTS: tuple[tuple[str, str, str], ...] = (
    ("sharing", "sharing", "number"),
    ("unique", "unique answers", "share"),
    ("zero_variance", "zero variance", "share"),
    ("truncated", "truncated", "share"),
    ("failed", "failed", "number"),
    ("length", "length", "number"),
    ("entropy", "entropy", "number"),
)
"""Metrics of the training rollouts shown where they were measured: name, heading, kind."""

CURVES: tuple[tuple[str, str, bool], ...] = (
    ("mean", "Outcome of training rollouts", False),
    ("zero_variance", "Groups without variance", True),
    ("unique", "Unique answers in a group", True),
    ("sharing", "Sharing: tokens on paths per token decoded", False),
    ("entropy", "Entropy of the policy", False),
    ("length", "Policy tokens per rollout", False),
)


def page(result: Comparison, tree: ReportTree | None = None) -> Page:
    """Verdicts, learning curves, a tree that was grown, the table at the budget, and how to repeat it."""
    on, labels = result.conditions, [a.label for a in result.arms]
    axis = AXIS_NAMES[on.axis]
    budget = duration(on.budget) if on.axis == "seconds" else f"{shown(on.budget, 'count')} {axis}"
    short = len(result.seeds) < result.wanted_seeds
    state = f" Interrupted: {len(result.seeds)} of {result.wanted_seeds} seeds are finished." if short else ""
    return Page(
        title=f"{_listed(labels)} on {on.task}",
        lead=f"{_what(result, budget)}{state}",
        facts=(
            ("task", on.task if on.level is None else f"{on.task}, level {on.level}"),
            ("policy", on.model),
            ("budget per run", budget),
            ("seeds", ", ".join(map(str, result.seeds))),
            ("baseline", labels[0]),
            ("took", duration(result.seconds)),
        ),
        findings=[ReportFinding(c.outcome, c.words) for c in result.contrasts],
        charts=_charts(result),
        grids=_grids(result),
        trees=() if tree is None else (tree,),
        commands=[("The whole comparison; finished runs are reused", result.command)] if result.command else (),
        notes=_notes(result),
        versions=result.versions,
    )


def _what(result: Comparison, budget: str) -> str:
    """What was done with the arms: trained and judged, or, where nothing was trained, asked."""
    on, seeds = result.conditions, _seeds(result.seeds)
    if not any(trace.cost("trained") for trace in result.traces):
        return (
            f"Each answered the same {on.eval_items} held-out items with the same frozen policy and at most {budget} "
            f"over all roles, {seeds}; judged by {result.metric}."
        )
    return (
        f"Each trained from the same policy on the same prompts with {budget}, {seeds}; judged by {result.metric} on "
        f"{on.eval_items} held-out items with {on.eval_samples} samples each."
    )


def _charts(result: Comparison) -> list[Chart]:
    on = result.conditions
    names = (
        ("pass@1", "Held-out pass@1", True), (f"pass@{on.eval_samples}", f"Held-out pass@{on.eval_samples}", True),
        *CURVES,
    )  # fmt: skip
    out: list[Chart] = []
    for metric, title, percent in dict.fromkeys(names):
        if not all(row_name(metric) in t.metrics() for a in result.arms for t in result.of(a.label)):
            continue
        lines = [_series(a.label, result.of(a.label), metric, result) for a in result.arms]
        if metric in ("sharing", "zero_variance") and len({v for line in lines for v in line.y}) == 1:
            continue  # a constant is said by the table
        target = result.target if metric == "pass@1" else None
        note = "" if out else f"{_how(result)} Dotted: the target, {shown(target, 'share')}."
        out.append(
            Chart(
                title,
                AXIS_NAMES[on.axis],
                metric if held_out(metric) else row_name(metric),
                lines,
                percent,
                target,
                note,
            )
        )
    return out


def _how(result: Comparison) -> str:
    seeds = len(result.seeds)
    if seeds == 1:
        return "One seed: no band can be given."
    if seeds < FEW:
        return f"Mean of {seeds} seeds, shaded from the lowest to the highest run: too few for an interval of a curve."
    level = f"{100 * result.confidence:.3g} %"
    return f"Mean of {seeds} seeds with its {level} t interval at each point; thin lines are single runs."


def _series(label: str, traces: Sequence[Trace], metric: str, result: Comparison) -> PlotSeries:
    on = result.conditions
    made = band(traces, metric, on.axis, level=result.confidence, until=on.budget)
    low, high = (made.low.tolist(), made.high.tolist()) if made.seeds > 1 else ((), ())
    runs: list[tuple[list[float], list[float]]] = []
    if made.seeds > 1 and metric.startswith("pass@"):
        for trace in traces:
            x, y = trace.curve(metric, on.axis)
            runs.append((x[x <= on.budget].tolist(), y[x <= on.budget].tolist()))
    return PlotSeries(label, made.x.tolist(), made.mean.tolist(), low, high, runs)


def _grids(result: Comparison) -> list[ReportTable]:
    on, target = result.conditions, shown(result.target, "share")
    k = f"pass@{on.eval_samples}"
    rollouts = [r for r in ROLLOUTS if all(run_means(result.of(a.label), r[0]) for a in result.arms)]
    outcome: list[list[str]] = []
    habits: list[list[str]] = []
    for arm in result.arms:
        traces = result.of(arm.label)
        outcome.append([
            arm.label,
            *(_share(_measure(result, traces, name)) for name in dict.fromkeys(("pass@1", k, "pass@1 area"))),
            reach_words(reaches(traces, "pass@1", result.target, "decoded"), lambda x: shown(x, "count")),
            reach_words(reaches(traces, "pass@1", result.target, "seconds"), duration),
            duration(sum(t.cost("seconds") for t in traces) / len(traces)),
        ])  # fmt: skip
        means = [(run_means(traces, name), kind) for name, _, kind in rollouts]
        habits.append([
            arm.label, *(_number(m, kind) for m, kind in means if m is not None),
            shown(sum(t.cost("decoded") for t in traces) / len(traces), "count"),
            shown(sum(t.cost("trained") for t in traces) / len(traces), "count"),
        ])  # fmt: skip
    columns = list(dict.fromkeys(["pass@1", k, "pass@1 on the way"]))
    few = len(result.seeds) < FEW
    spread = "(lowest–highest run)" if few else "± half of its interval"
    tests = [
        [c.subject, c.baseline, _difference(c.effect, result.metric), shown(c.p), shown(c.p_holm), shown(c.p_bh),
         shown(c.p_sign_flip), _items(result, c.subject, c.baseline), c.outcome]
        for c in result.contrasts
    ]  # fmt: skip
    return [
        ReportTable(
            "At the budget", ["recipe", *columns, f"tokens to {target}", f"seconds to {target}", "time per run"],
            outcome, f"Mean over seeds {spread}. Costs to the target are medians over seeds.",
        ),
        ReportTable(
            f"Differences in {result.metric}",
            ["recipe", "to", "difference", "p (t)", "p (Holm)", "q (BH)", "p (sign flips)", "seeds and items",
             "verdict"],
            tests,
            f"p: the chance of so large a gain where there is none, from one side; Holm's and Benjamini and Hochberg's "
            f"adjustments over the {len(tests)} comparisons of this table. Seeds and items: the difference in pass@1 "
            "at the last evaluation alone; its bootstrap interval draws seeds, and held-out items within each, again.",
        ),
        *_made_of(result),
        ReportTable("Rollouts while training", ["recipe", *(r[1] for r in rollouts), "decoded", "trained"], habits,
             "Means over whole runs."),
    ]  # fmt: skip


def _items(result: Comparison, subject: str, baseline: str) -> str:
    """The difference with held-out items drawn again too, where the runs kept what each item got."""
    found = by_items(result.of(subject), result.of(baseline), result.confidence)
    return "–" if found is None else _difference(found, "pass@1")


def _made_of(result: Comparison) -> list[ReportTable]:
    """Where a difference could come from, whether each mechanism acted, and what the runs cost."""
    out: list[ReportTable] = []
    if result.apart:
        out.append(ReportTable(
            "Where a difference could come from", ["recipe", f"what is not as in {result.arms[0].label}"],
            [[label, words] for label, words in result.apart],
        ))  # fmt: skip
    spent, counted = [n for n in COSTS if _spent(result, result.arms[0].label, n) is not None], _acted(result)
    if spent:
        rows = [[a.label, *(shown(_spent(result, a.label, n), "count") for n in spent)] for a in result.arms]
        about = "Means over seeds; one of them was made equal, the others are what it took."
        out.append(ReportTable("Costs of a run", ["recipe", *(cost_name(n) for n in spent)], rows, about))
        steps = [[a.label, *(_per_step(result.of(a.label), n) for n in PER_STEP)] for a in result.arms]
        out.append(ReportTable("A step", ["recipe", *(cost_name(n) for n in PER_STEP)], steps, "Means over steps."))
    if counted:
        out.append(ReportTable("Whether it acted", ["recipe", "counter", "mean", "share of steps"], counted))
    collapsed = [[a.label, *_collapses(result.of(a.label))] for a in result.arms]
    if any(row[1] != "0" for row in collapsed):
        out.append(ReportTable(
            "Collapse", ["recipe", "runs", "of", "pass@1 of the others"], collapsed,
            f"Runs that end below {100 * COLLAPSED:.0f} % of where they began. They count in every mean above.",
        ))  # fmt: skip
    return out


PER_STEP = ("optim/updates", "budget/groups", "budget/leaves")
"""What a step is made of: updates, prompts and rollouts."""


def _spent(result: Comparison, label: str, name: str) -> float | None:
    seen = [t.total(name) for t in result.of(label)]
    known = [v for v in seen if v is not None]
    return float(np.mean(known)) if known and len(known) == len(seen) else None


def _per_step(traces: Sequence[Trace], name: str) -> str:
    seen = [v for t in traces if (v := t.mean(name)) is not None]
    return shown(float(np.mean(seen))) if seen else "–"


def acts(result: Comparison) -> dict[str, Acted]:
    """What each arm's counter says over all steps of all its runs, by label."""
    out: dict[str, Acted] = {}
    for arm in result.arms:
        counter = counter_of(arm.recipe)
        if counter is not None:
            steps = [r[counter.metric] for t in result.of(arm.label) for r in t.rows if counter.metric in r]
            if (found := acted(arm.label, counter, steps)) is not None:
                out[arm.label] = found
    return out


def _acted(result: Comparison) -> list[list[str]]:
    """Each arm's counter: its mean, and the share of training steps in which it was not at rest."""
    return [
        [label, a.counter.metric, shown(a.counter.rest + a.moved / a.looked), shown(a.acted / a.looked, "share")]
        for label, a in acts(result).items()
    ]


def _collapses(traces: Sequence[Trace]) -> list[str]:
    ends = [(float(t.curve("pass@1")[1][0]), endpoint(t, "pass@1")) for t in traces]
    fine = [end for start, end in ends if end >= COLLAPSED * start]
    return [str(len(ends) - len(fine)), str(len(ends)), shown(float(np.mean(fine)), "share") if fine else "–"]


def _measure(result: Comparison, traces: Sequence[Trace], metric: str) -> Measure:
    return measures(traces, metric, result.conditions.budget, result.conditions.axis, result.confidence)


def _share(measure: Measure) -> str:
    if len(measure.per_seed) < FEW:
        low, high = min(measure.per_seed.values()), max(measure.per_seed.values())
        spread = f" ({100 * low:.1f}–{100 * high:.1f})" if len(measure.per_seed) > 1 else ""
    else:
        spread = f" ± {50 * (measure.interval.high - measure.interval.low):.1f}"
    return f"{100 * measure.interval.estimate:.1f}{spread} %"


def _number(measure: Measure, kind: str) -> str:
    return shown(measure.interval.estimate, "share" if kind == "share" else "number")


def _difference(effect: Interval, metric: str) -> str:
    """In points for shares, else in the metric's own unit."""
    points = is_share(metric)

    def signed(x: float) -> str:
        return f"{100 * x:+.1f}" if points else f"{x:+.4g}"

    if effect.n == 1:
        return signed(effect.estimate)
    return f"{signed(effect.estimate)} ({signed(effect.low)} to {signed(effect.high)})"


def _notes(result: Comparison) -> list[str]:
    several, seeds, less = len(result.contrasts) > 1, len(result.seeds), less_is_better(result.metric)
    return [
        "Every recipe has the same start, prompts, held-out items, seeds and budget; values at the budget are means of "
        "the last three evaluations.",
        "Differences are paired by seed. Intervals are t intervals, which suit few seeds; the sign-flip p-value "
        f"assumes nothing about shape but cannot be below {2 / 2**seeds:.3g} with {seeds} seeds.",
        *(["Several comparisons: the ends of each interval stand where Holm's procedure puts them, lower ends for a "
           "gain and upper ends for the claimed effect, so the chance that any verdict is wrong is at most "
           f"{100 * (1 - result.confidence):.3g} %."]
          if several else []),
        "“On the way” is the average over the learning curve up to the budget.",
        *(f"“{rule.outcome.capitalize()}”: the interval {rule.when}." for rule in GAIN),
        *(["Less is better here: above means below."] if less else []),
        "pass@k is the unbiased estimator from all samples of an item. Sharing is tokens on paths per token decoded.",
    ]  # fmt: skip


def _seeds(seeds: Sequence[int]) -> str:
    return "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
