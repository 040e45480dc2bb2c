"""Confirm preregistered claims on fresh seeds: `python -m studies.confirm NAME`.

All claims run to the first look; what it decides needs no more seeds, the rest goes on to the next. What comes out
stands in `studies/preregistered/NAME.result.json` after every look. `--plan` says what the whole would cost at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from rolltree.compare.arms import arms
from rolltree.compare.contrast import by_items, measures
from rolltree.compare.names import COSTS
from rolltree.compare.regimes import Calibrated, calibrated, regime
from rolltree.compare.runner import Runner, Spec
from rolltree.compare.stats import Asked, corrected, describe
from rolltree.compare.trace import Trace, write_json
from rolltree.recipe.registry import counter_of
from studies.command import run_study
from studies.lab.kept import KEPT
from studies.lab.sequential import look_levels, sequential_holm
from studies.preregistration import FOLDER, Preregistration, committed, read
from studies.shelf_runs import Priced, bill, make, price
from studies.study_shelf import StudyShelf
from studies.table_runs import fell
from studies.tables import TableArm
from studies.unanswerable import idle, lost


@dataclass(frozen=True)
class ConfirmSettings:
    """Which preregistration."""

    name: tyro.conf.Positional[str]
    """The file's name without its ending."""
    plan: bool = False
    """Say what it costs at most and stop."""
    folder: Path = FOLDER
    """Where preregistrations stand."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content."""
    kept: Path = KEPT
    """The runs that the repository keeps."""
    threads: int = 1
    """Threads of processor work."""


def specs(asked: Preregistration, arm: TableArm, seeds: range, rate: Calibrated) -> list[Spec]:
    """An arm's runs: the regime's knobs, the calibrated rate, its own."""
    on = regime(asked.regime)
    made = arms([arm.recipe], [*on.settings, *rate.settings(), *arm.knobs])[0]
    return [Spec(replace(made, label=arm.label), seed, on.conditions()) for seed in seeds]


def main(settings: ConfirmSettings, runner: Runner | None = None) -> dict[str, str] | None:
    """Each claim's verdict by label; None for a plan alone."""
    torch.set_num_threads(settings.threads)
    path = settings.folder / f"{settings.name}.json"
    asked = read(path)
    commit, rate, on = committed(path), calibrated(asked.regime), regime(asked.regime)
    if runner is None:
        from rolltree.compare.train_runner import TrainRunner

        runner = TrainRunner()
    shelf = StudyShelf(settings.cache, runner, kept=settings.kept)

    def plan(chosen: list[TableArm], first: int, last: int) -> list[Priced]:
        seeds = range(asked.first_seed + first, asked.first_seed + last)
        columns = [specs(asked, arm, seeds, rate) for arm in chosen]
        return [price(spec, on.seconds) for seed in zip(*columns, strict=True) for spec in seed]

    most = plan([asked.baseline, *asked.claims], 0, asked.looks[-1])
    print(f"{asked.name}: at most {bill(most, shelf)}", flush=True)
    if settings.plan:
        return None
    traces: dict[str, list[Trace]] = {arm.label: [] for arm in (asked.baseline, *asked.claims)}
    holds, ended, done, told = [False] * len(asked.claims), [0] * len(asked.claims), 0, dict[str, str]()
    for look, n in enumerate(asked.looks):
        open_ = [arm for arm, held in zip(asked.claims, holds, strict=True) if not held]
        make(
            plan([asked.baseline, *open_], done, n), shelf, lambda trace, spec: traces[trace.label].append(trace), print
        )
        done = n
        found = corrected([Asked(_differences(asked, traces, arm), least=asked.least, pool="points")
                           for arm in asked.claims])  # fmt: skip
        holds = sequential_holm([one.p for one in found], holds, look, asked.looks, asked.alpha)
        ended = [e or (n if held else 0) for e, held in zip(ended, holds, strict=True)]
        told = _verdicts(asked, traces, holds, last=n == asked.looks[-1])
        _write(settings.folder / f"{asked.name}.result.json", asked, commit, traces, told, ended)
        print(f"look at {n} seeds: " + "; ".join(f"{k}: {v}" for k, v in told.items()), flush=True)
        if all(holds):
            break
    return told


def _differences(asked: Preregistration, traces: dict[str, list[Trace]], arm: TableArm) -> tuple[float, ...]:
    mine, theirs = _values(asked, traces[arm.label]), _values(asked, traces[asked.baseline.label])
    return tuple(mine[s] - theirs[s] for s in sorted(mine.keys() & theirs.keys()))


def _values(asked: Preregistration, found: list[Trace]) -> dict[int, float]:
    on = regime(asked.regime)
    return dict(measures(found, on.metric, float(on.budget), "decoded").per_seed)


def _verdicts(
    asked: Preregistration, traces: dict[str, list[Trace]], holds: list[bool], *, last: bool
) -> dict[str, str]:  # fmt: skip
    """*holds* is what the looks decided; the other verdicts are only given when all seeds are in."""
    found = corrected(
        [Asked(_differences(asked, traces, arm), least=asked.least, pool="points") for arm in asked.claims]
    )
    out: dict[str, str] = {}
    base = traces[asked.baseline.label]
    why = lost(sum(map(fell, base)), list(_values(asked, base).values()))
    for arm, held, one in zip(asked.claims, holds, found, strict=True):
        if why or _idle(arm, traces[arm.label]):
            out[arm.label] = f"void: {why or 'the mechanism never acted'}"
        elif held:
            out[arm.label] = "claim excluded" if one.effect.high < asked.least else "holds"
        elif last:
            # The looks have spent the level of "holds": what is left is what the upper end excludes.
            closed = replace(one.effect, low=min(one.effect.low, 0.0))
            out[arm.label] = describe(
                closed, subject=arm.label, baseline=asked.baseline.label, metric=regime(asked.regime).metric,
                least=asked.least, unit="points",
            ).outcome  # fmt: skip
        else:
            out[arm.label] = "open"
    return out


def _idle(arm: TableArm, found: list[Trace]) -> bool:
    counter = counter_of(arm.recipe)
    seen = [v for t in found if counter is not None and (v := t.mean(counter.metric)) is not None]
    return counter is not None and idle(seen, counter.rest)


def _write(path: Path, asked: Preregistration, commit: str, traces: dict[str, list[Trace]], told: dict[str, str],
           ended: list[int]) -> None:  # fmt: skip
    rows: list[dict[str, Any]] = []
    base = traces[asked.baseline.label]
    found = corrected([Asked(_differences(asked, traces, arm), least=asked.least, pool="points")
                       for arm in asked.claims])  # fmt: skip
    for arm, seeds, one in zip(asked.claims, ended, found, strict=True):
        d, items = _differences(asked, traces, arm), by_items(traces[arm.label], base)
        rows.append({"label": arm.label, "verdict": told[arm.label], "seeds": len(d), "held_at": seeds or None,
                     "mean": sum(d) / len(d), "differences": list(d), "q": one.p_bh,
                     "seeds_and_items": None if items is None else [items.estimate, items.low, items.high],
                     **_spent(traces[arm.label])})  # fmt: skip
    levels = [look_levels(asked.looks, asked.alpha / m) for m in range(len(asked.claims), 0, -1)]
    write_json(path, {"preregistered": commit, "regime": asked.regime, "least": asked.least, "looks": list(asked.looks),
                      "baseline": {"label": asked.baseline.label, **_spent(base)},
                      "levels_by_open_claims": {str(len(asked.claims) - i): list(one) for i, one in enumerate(levels)},
                      "claims": rows})  # fmt: skip


def _spent(found: list[Trace]) -> dict[str, Any]:
    """How many runs collapsed, and what they cost, means over seeds."""
    costs = {name: [v for t in found if (v := t.total(name)) is not None] for name in COSTS}
    return {"collapsed": sum(map(fell, found)), "costs": {k: sum(v) / len(v) for k, v in costs.items() if v}}


if __name__ == "__main__":
    raise SystemExit(run_study("confirm", ConfirmSettings, main, __doc__))
