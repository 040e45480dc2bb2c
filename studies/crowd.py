"""Many judges of unequal worth: scales, aggregates, evidence, criteria and corrections (S167, S168, S075), `python -m
studies.crowd`.

Judges grade statements of a truth on six steps. Honest ones err by a step or so; spammers press one button whatever
they see. Grades are merged to three or two steps, and put together by mean, median, majority or estimated reliability.
Asked for evidence, a judge without it abstains. Criteria of unequal worth are put together by a fit on known cases.
Links of a hierarchy that a generator proposed are checked by itself, or by a corrector fitted on what was corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.judge.calibration import alpha, auc
from rolltree.generate.judge.panel import Aggregate, aggregated, fit
from studies.command import run_study

Floats = NDArray[np.float64]
HOW: tuple[Aggregate, ...] = ("mean", "median", "majority", "reliability")
STEPS = 6


@dataclass(frozen=True, slots=True)
class Crowd:
    """Grades by judge and statement in [0, 1], the truth, and who had evidence."""

    grades: Floats
    truth: Floats
    evidence: NDArray[np.bool_]


def crowd(seed: int, *, judges: int = 10, spammers: float = 0.0, statements: int = 120, noise: float = 1.2,
          linked: bool = True) -> Crowd:  # fmt: skip
    """`linked`: who has evidence errs half as much; otherwise evidence says nothing."""
    rng = np.random.default_rng([seed, 167])
    truth = rng.integers(STEPS, size=statements)
    evidence = rng.random((judges, statements)) < 0.5
    error = rng.normal(size=(judges, statements)) * noise * np.where(evidence & linked, 0.5, 1.0)
    grades = np.clip(np.rint(truth + error), 0, STEPS - 1)
    # A spammer has no evidence, and one button.
    pressing = rng.random(judges) < spammers
    grades[pressing] = rng.integers(STEPS, size=judges)[pressing, None]
    evidence[pressing] = False
    return Crowd(grades / (STEPS - 1), truth / (STEPS - 1), evidence)


def merged(grades: Floats, steps: int) -> Floats:
    """Grades on fewer steps."""
    level = np.minimum(np.floor(np.rint(grades * (STEPS - 1)) * steps / STEPS), steps - 1)
    return np.where(np.isnan(grades), np.nan, level / (steps - 1))


def judged(made: Crowd, how: Aggregate, *, steps: int = STEPS, needs_evidence: bool = False) -> float:
    """How often a statement is put on the right side of the middle; one that nobody grades counts half."""
    votes = np.where(made.evidence | (not needs_evidence), merged(made.grades, steps), np.nan)
    found = aggregated(votes, how)
    right = np.where(np.isnan(found), 0.5, (found >= 0.5) == (made.truth >= 0.5))
    return float(right.mean())


def criteria(seed: int, *, known: int = 60, asked: int = 600) -> Mapping[str, float]:
    """Eight criteria of unequal worth: fitted, their mean vote, and the first alone; and the fit by slices.

    Cases of the second slice are less known, so that every criterion says less about them.
    """
    rng = np.random.default_rng([seed, 168])
    truth = rng.random(known + asked) < 0.5
    popular = rng.random(known + asked) < 0.5
    worth = np.array([2.0, 1.2, 0.8, 0.4, 0.2, 0.1, 0.0, 0.0])[rng.permutation(8)]
    signal = np.where(truth, 1.0, -1.0)[:, None] * worth * np.where(popular, 1.0, 0.4)[:, None]
    says = (signal + rng.normal(size=(known + asked, 8)) * 1.5 > 0).astype(np.float64)
    fitted = fit(says[:known], list(truth[:known]))(says[known:])
    out = {"fitted": fitted >= 0.5, "mean": says[known:].mean(1) >= 0.5, "first": says[known:, 0] >= 0.5}
    right = {name: said == truth[known:] for name, said in out.items()}
    shares = {name: float(hits.mean()) for name, hits in right.items()}
    slices = {f"fitted, {name}": float(right["fitted"][popular[known:] == which].mean())
              for name, which in (("popular", True), ("others", False))}  # fmt: skip
    return shares | slices


def corrected(seed: int, by: Literal["nobody", "itself", "corrector"], *, known: int = 100, links: int = 2000) -> float:
    """F1 of a generator's links after each was looked at once more.

    The generator is right about .7 of its links and as sure of many wrong ones, so asking it again repeats what it
    thought. The corrector was fitted on links that experts corrected; it sees the generator's sureness and how near the
    two ends are.
    """
    rng = np.random.default_rng([seed, 75])
    truth = rng.random(known + links) < 0.7
    sure = np.where(truth, 0.6, 0.4) + rng.normal(size=len(truth))
    near = np.where(truth, 0.8, -0.8) + rng.normal(size=len(truth))
    keep = np.ones(links, np.bool_)
    if by == "itself":
        keep = sure[known:] + 0.5 * rng.normal(size=links) > -0.5
    elif by == "corrector":
        x = np.column_stack([sure, near])
        keep = fit(x[:known], list(truth[:known]))(x[known:]) >= 0.5
    hits = float((keep & truth[known:]).sum())
    return 2 * hits / (float(keep.sum()) + float(truth[known:].sum()))


@dataclass(frozen=True)
class CrowdSettings:
    """How much is run."""

    seeds: int = 20
    """Crowds."""
    spammers: tuple[float, ...] = field(default=(0.0, 0.2, 0.4))
    """Shares of the judges that press one button."""


def main(settings: CrowdSettings) -> None:
    """Aggregates by share of spammers, scales, evidence, criteria, corrections."""
    seeds = range(settings.seeds)
    for share in settings.spammers:
        made = [crowd(s, spammers=share) for s in seeds]
        told = "  ".join(f"{how} {np.mean([judged(m, how) for m in made]):.3f}" for how in HOW)
        print(f"spammers {share:.1f}  {told}  alpha {np.mean([alpha(m.grades) for m in made]):.2f}")
    plain = [crowd(s, spammers=0.2) for s in seeds]
    for steps in (6, 3, 2):
        print(f"{steps} steps  mean {np.mean([judged(m, 'mean', steps=steps) for m in plain]):.3f}  alpha "
              f"{np.mean([alpha(merged(m.grades, steps)) for m in plain]):.2f}")  # fmt: skip
    for linked in (True, False):
        made = [crowd(s, judges=6, noise=2.5, linked=linked) for s in seeds]
        rows = [np.mean([judged(m, "mean", needs_evidence=needs) for m in made]) for needs in (False, True)]
        print(f"evidence {'helps' if linked else 'says nothing'}: all votes {rows[0]:.3f}, with evidence {rows[1]:.3f}")
    found = [criteria(s) for s in seeds]
    print("criteria  " + "  ".join(f"{name} {np.mean([f[name] for f in found]):.3f}" for name in found[0]))
    for by in ("nobody", "itself", "corrector"):
        print(f"links corrected by {by}: F1 {np.mean([corrected(s, by) for s in seeds]):.3f}")
    truth = [crowd(s) for s in seeds]
    print(f"one judge's AUC {np.mean([auc(list(m.grades[0]), list(m.truth >= 0.5)) for m in truth]):.3f}")


if __name__ == "__main__":
    raise SystemExit(run_study("crowd", CrowdSettings, main, __doc__))
