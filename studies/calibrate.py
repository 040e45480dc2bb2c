"""Rate and updates of a regime, for its plain baseline: `python -m studies.calibrate NAME`.

Every rate with every number of updates on two seeds that nothing else uses; the pair with the highest mean at the end
is stored in `rolltree/compare/calibrated/NAME.json` with all that was tried. `--plan` says the cost and runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from rolltree.compare.arms import arms
from rolltree.compare.contrast import measures
from rolltree.compare.regimes import CALIBRATED, CALIBRATION_SEEDS, Calibrated, regime
from rolltree.compare.report import versions
from rolltree.compare.runner import Runner, Spec
from rolltree.compare.trace import LabError, Trace, write_json
from studies.again import take_over
from studies.command import run_study
from studies.lab.kept import KEPT
from studies.shelf_runs import bill, make, price
from studies.study_shelf import StudyShelf


@dataclass(frozen=True)
class CalibrateSettings:
    """Which regime, and how much of it."""

    name: tyro.conf.Positional[str]
    """A regime (docs/howto/regimes.md)."""
    plan: bool = False
    """Say what it costs and stop."""
    baseline: str = "grpo"
    """The recipe whose rate and updates are chosen."""
    budget: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Decoded tokens of a run; the regime's own when left out."""
    rates: tuple[float, ...] = ()
    """Rates to try; the regime's own when left out."""
    updates: tuple[int, ...] = ()
    """Updates of a step to try; the regime's own when left out."""
    seeds: tuple[int, ...] = CALIBRATION_SEEDS
    """Seeds of each arm."""
    end_items: int = 256
    """Held-out items of the first and the last evaluation."""
    set: tuple[str, ...] = ()
    """More knobs for all runs, as of `rolltree compare --set`."""
    out: Path = CALIBRATED
    """Folder for NAME.json."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content."""
    kept: Path = KEPT
    """The runs that the repository keeps."""
    again: bool = False
    """Repeat one of each kind of run that is kept from other code, and take the others over where it is the same."""
    threads: int = 1
    """Threads of processor work."""


def main(settings: CalibrateSettings, runner: Runner | None = None) -> Calibrated | None:
    """Run, choose and store; None for a plan alone."""
    torch.set_num_threads(settings.threads)
    if runner is None:
        from rolltree.compare.train_runner import TrainRunner

        runner = TrainRunner()
    if of := regime(settings.name).rate_of:
        raise LabError(f"the regime {settings.name!r} takes the rate of {of!r}; calibrate that one")
    chosen, shelf = regime(settings.name), StudyShelf(settings.cache, runner, kept=settings.kept)
    on = chosen.conditions(settings.budget, settings.end_items)
    tried = [Calibrated(lr, n) for n in settings.updates or chosen.updates for lr in settings.rates or chosen.rates]
    specs = {
        pair: [Spec(arms([settings.baseline], [*chosen.settings, *pair.settings(), *settings.set])[0], seed, on)
               for seed in settings.seeds]
        for pair in tried
    }  # fmt: skip
    scale = on.budget / chosen.budget
    plan = [price(spec, chosen.seconds * scale) for seed in zip(*specs.values(), strict=True) for spec in seed]
    print(f"{chosen.name}: {bill(plan, shelf)}")
    if settings.plan:
        return None
    if settings.again:
        take_over([p.spec for p in plan], shelf, lambda words: print(words, flush=True))
    found: dict[Spec, Trace] = {}
    make(plan, shelf, lambda trace, spec: found.__setitem__(spec, trace), print)
    ends = {
        pair: measures([found[s] for s in of_pair], chosen.metric, on.budget, on.axis).per_seed
        for pair, of_pair in specs.items()
    }
    means = {pair: sum(of.values()) / len(of) for pair, of in ends.items()}
    best = max(tried, key=lambda pair: means[pair])
    write_json(settings.out / f"{chosen.name}.json", {
        "regime": chosen.name, "baseline": settings.baseline, "metric": chosen.metric, "budget": on.budget,
        "seeds": list(settings.seeds), "chosen": {"lr": best.lr, "updates": best.updates},
        "tried": [{"lr": p.lr, "updates": p.updates, "mean": means[p], "per_seed": list(ends[p].values())}
                  for p in tried],
        "versions": dict(versions()),
    })  # fmt: skip
    print(f"{chosen.name}: lr {best.lr:g}, {best.updates} updates a step, {chosen.metric} {100 * means[best]:.1f} %")
    return best


if __name__ == "__main__":
    raise SystemExit(run_study("calibrate", CalibrateSettings, main, __doc__))
