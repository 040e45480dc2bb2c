"""The page of `rolltree.lab.controllers`: a table of every control, a panel of its curve, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from rolltree.lab.compare import Comparison
from rolltree.lab.contrast import Contrast, Measure, measures, reach_words, reaches, run_means
from rolltree.lab.curves import band
from rolltree.lab.report import duration, shown
from rolltree.lab.stats import Reach
from rolltree.lab.trace import Trace, write_json

WIDE, HIGH, GAP, ACROSS = 150, 110, 34, 5
SAID = "## What came out"
ENOUGH = 3
"""Seeds from which on an interval is given; of fewer the lowest and the highest."""
GREY, BLUE = "#9a9a9a", "#1f6feb"
HEAD = (
    "arm", "pass@1", "against {base}", "pass@{k}", "pass@1 on the way", "tokens to {target}", "steps", "seconds",
    "groups without variance", "steps in all",
)  # fmt: skip


def write_page(folder: Path, result: Comparison, command: str = "") -> Path:
    """Write `controllers.md`, `controllers.svg` and `controllers.json`.

    What a person wrote below the heading "What came out" of a page that stands there is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "controllers.svg").write_text(figure(result), encoding="utf-8")
    write_json(folder / "controllers.json", {
        arm.label: [{"seed": t.seed, "rows": [dict(r) for r in t.rows if "pass@1" in r],
                     "steps": _steps(t, t.cost("decoded")), "zero_variance": t.mean("zero_variance")}
                    for t in result.of(arm.label)]
        for arm in result.arms
    })  # fmt: skip
    path = folder / "controllers.md"
    said = path.read_text(encoding="utf-8").partition(SAID)[2].strip() if path.is_file() else ""
    path.write_text(text(result, said, command), encoding="utf-8")
    return path


def text(result: Comparison, said: str = "", command: str = "") -> str:
    """The page as Markdown."""
    on, base = result.conditions, result.arms[0].label
    start = np.mean([t.curve("pass@1")[1][0] for a in result.arms for t in result.of(a.label)])
    seeds = ", ".join(map(str, result.seeds))
    parts = [
        "# All controls at one budget",
        f"Every control on `{on.task}`{'' if on.level is None else f' up to level {on.level}'} from the embedded "
        f"policy: {shown(on.budget, 'count')} decoded tokens each (rollouts that only measure are paid for), seeds "
        f"{seeds}, judged on {on.eval_items} held-out items with {on.eval_samples} samples each. They start from "
        f"{shown(float(start), 'share')}. A control is trained in its own recipe, with the credit and objective of its "
        f"paper; “{base} + …” is one without. Numbers are means over seeds {_spread(result)}; differences are paired "
        f"by seed. Costs are medians over seeds to {shown(result.target, 'share')}, half of the largest gain any arm "
        "made.",
        _table(result),
        *(
            [
                f"“Holds” and “fails” are against {base} at the level that Holm's procedure leaves each of "
                f"{len(result.contrasts)} comparisons, so that all of them together err as seldom as one; the "
                "interval shown is of that level."
            ]
            if len(result.seeds) >= ENOUGH
            else []
        ),
        "A control that asks for more rollouts a step, or measures some, makes fewer steps.",
        "![Held-out pass@1 against decoded tokens, a panel for each control](controllers.svg)",
        f"Blue is the arm, grey {base}; the band runs from the lowest to the highest seed.",
        f"Repeat it with `{command or 'python -m rolltree.lab.controllers'}`; the numbers behind the figure are in "
        "`controllers.json`.",
        *([SAID, said] if said else []),
    ]
    return "\n\n".join(parts) + "\n"


def _spread(result: Comparison) -> str:
    if len(result.seeds) == 1:
        return "(here one seed: nothing can be said about chance)"
    if len(result.seeds) < ENOUGH:
        return "with the lowest and the highest, too few for an interval"
    return f"± half of a {100 * result.confidence:g} % t interval"


def figure(result: Comparison) -> str:
    """A panel for each arm: its mean and range over seeds, and the baseline's mean."""
    on, base = result.conditions, result.of(result.arms[0].label)
    every = [y for a in result.arms for t in result.of(a.label) for y in t.curve("pass@1")[1]]
    low, high = min(every), max(every)
    rows = -(-len(result.arms) // ACROSS)
    width, height = ACROSS * (WIDE + GAP) + 40, rows * (HIGH + GAP + 14) + 44
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="10">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="40" y="18" font-size="13" font-weight="bold">Held-out pass@1 against decoded tokens, '
        f"{escape(on.task)}</text>",
    ]
    for i, arm in enumerate(result.arms):
        left, top = 40 + (i % ACROSS) * (WIDE + GAP), 46 + (i // ACROSS) * (HIGH + GAP + 14)
        out += _panel(arm.label, result.of(arm.label), base, left, top, on.budget, (float(low), float(high)))
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(
    name: str, traces: Sequence[Trace], base: Sequence[Trace], left: int, top: int, budget: float,
    ends: tuple[float, float],
) -> list[str]:  # fmt: skip
    low, high = ends

    def path(x: Sequence[float], y: Sequence[float]) -> str:
        spots = [f"{left + WIDE * a / budget:.1f} {top + HIGH * (high - b) / (high - low):.1f}"
                 for a, b in zip(x, y, strict=True)]  # fmt: skip
        return "M" + "L".join(spots)

    mine, theirs = band(traces, "pass@1", until=budget, points=30), band(base, "pass@1", until=budget, points=30)
    across, up = mine.x.tolist(), mine.high.tolist()
    return [
        f'<text x="{left}" y="{top - 6}" font-size="11" font-weight="bold">{escape(name)}</text>',
        f'<path d="M{left} {top}V{top + HIGH}H{left + WIDE}" fill="none" stroke="#57606a"/>',
        f'<text x="{left - 4}" y="{top + 8}" text-anchor="end">{high:.0%}</text>',
        f'<text x="{left - 4}" y="{top + HIGH}" text-anchor="end">{low:.0%}</text>',
        f'<text x="{left + WIDE}" y="{top + HIGH + 12}" text-anchor="end">{shown(budget, "count")}</text>',
        f'<path d="{path([*across, *across[::-1]], [*mine.low.tolist(), *up[::-1]])}Z" fill="{BLUE}" '
        'fill-opacity="0.15"/>',
        f'<path d="{path(theirs.x.tolist(), theirs.mean.tolist())}" fill="none" stroke="{GREY}" stroke-width="1.5"/>',
        f'<path d="{path(across, mine.mean.tolist())}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
    ]


def _table(result: Comparison) -> str:
    on = result.conditions
    k = f"pass@{on.eval_samples}"
    target = shown(result.target, "share")
    head = [h.format(base=result.arms[0].label, k=on.eval_samples, target=target) for h in HEAD]
    found = {c.subject: c for c in result.contrasts}
    theirs = _at(result, result.arms[0].label, "pass@1")
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    ranked = sorted(result.arms[1:], key=lambda a: -_at(result, a.label, "pass@1").interval.estimate)
    for arm in (result.arms[0], *ranked):
        traces = result.of(arm.label)
        flat, mine = run_means(traces, "zero_variance"), _at(result, arm.label, "pass@1")
        tokens = reaches(traces, "pass@1", result.target, "decoded")
        steps = [Reach(float(_steps(t, r.cost)), r.reached) for t, r in zip(traces, tokens, strict=True)]
        lines.append("| " + " | ".join([
            arm.label, *(_share(mine), _against(found.get(arm.label), mine, theirs)),
            *(_share(_at(result, arm.label, name)) for name in (k, "pass@1 area")),
            reach_words(tokens, lambda x: shown(x, "count")), reach_words(steps, lambda x: f"{x:.0f}"),
            reach_words(reaches(traces, "pass@1", result.target, "seconds"), duration),
            "–" if flat is None else shown(flat.interval.estimate, "share"),
            f"{np.mean([_steps(t, t.cost('decoded')) for t in traces]):.0f}",
        ]) + " |")  # fmt: skip
    return "\n".join(lines)


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


def _steps(trace: Trace, cost: float) -> int:
    """Training steps made until a cost; evaluations are rows of their own."""
    return sum("pass@1" not in row and row["decoded"] <= cost for row in trace.rows)
