"""Bias and variance of off-policy objectives under staleness, exactly; `python -m studies.exact.staleness`.

A REINFORCE run publishes a version per step; rollouts come from the version `lag` steps back. For each objective the
gradient of every one of the 6,561 paths is computed with the shipped code, so its mean and variance under the behaviour
distribution are sums. Objectives that look at the whole batch (BAPO's bounds, VCPO's baseline) see the whole
distribution: what they tend to with many rollouts. The second half trains from stale rollouts and asks how fast it
learns.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rolltree.objective.batch import Objective
from rolltree.objective.correction import ImportanceWeight
from rolltree.objective.registry import load_objective
from rolltree.objective.staleness import ess, minimum_variance_baseline, step_scale
from studies.exact.chain import Chain, chain, coefficients, stale_batch, start, versions
from studies.exact.staleness_page import Results, write_page

LAGS = (0, 1, 2, 4, 8, 16, 32, 64)
ROLLOUTS = 64
CURRENT = 80
SEEDS = 5


@dataclass(frozen=True)
class Method:
    """An objective, whether its `old` is the current policy (else the behaviour's), and VCPO's two additions."""

    name: str
    objective: Objective
    proximal: bool = True
    baseline: bool = False
    scaled: bool = False


def methods() -> tuple[Method, ...]:
    """What is compared."""
    whole = ImportanceWeight("sequence", "none")
    return (
        Method("no correction", load_objective("reinforce")),
        Method("sequence IS", load_objective("reinforce", correction=whole)),
        Method("TIS (token, cap 2)", load_objective("reinforce", correction="tis")),
        Method("PPO clip on stale data", load_objective("clipped"), proximal=False),
        Method("decoupled PPO (mask 5)", load_objective("decoupled")),
        Method("MinPRO", load_objective("minpro")),
        Method("MinPRO, inclusive, capped", load_objective("minpro", inclusive=True, cap=True)),
        Method("VCPO loss (cap 8)", load_objective("vcpo")),
        Method("VCPO with its baseline and step", load_objective("vcpo"), baseline=True, scaled=True),
        Method("BAPO", load_objective("bapo"), proximal=False),
        Method("ReMix", load_objective("remix")),
    )


@dataclass(frozen=True)
class StalenessMeasure:
    """One objective at one lag on one problem; everything relative to the norm of the true gradient."""

    bias: float
    deviation: float
    """Standard deviation of the mean of `ROLLOUTS` paths."""
    efficiency: float
    """⟨E ĝ, ∇J⟩²/(‖∇J‖²·E‖ĝ‖²) with `ROLLOUTS` paths: 1 = exact up to scale, 0 = no use."""


@dataclass(frozen=True)
class Drift:
    """How far the behaviour policy is at a lag."""

    gap: float
    """Mean |log π − log μ| per action."""
    ess: float
    """Effective share of whole-path weights."""
    value: float
    """Expected reward of the behaviour policy."""


def measure(problem: Chain, theta: Tensor, behaviour: Tensor, method: Method) -> StalenessMeasure:
    """Mean and variance of one path's gradient by enumeration."""
    distribution = problem.distribution(behaviour)
    center = (
        _baseline(problem, theta, behaviour, distribution, distribution)
        if method.baseline
        else (distribution * problem.reward).sum()
    )
    batch = stale_batch(problem, theta, behaviour, distribution, problem.reward - center, proximal=method.proximal)
    per_path = problem.scores(theta, coefficients(method.objective, batch, len(distribution)) / distribution[:, None])
    true = problem.true_gradient(theta).reshape(-1)
    mean = distribution @ per_path
    variance = float(distribution @ per_path.square().sum(1) - mean.square().sum()) / ROLLOUTS
    norm = float(true.norm())
    second = float(mean.square().sum()) + variance
    return StalenessMeasure(
        bias=float((mean - true).norm()) / norm,
        deviation=math.sqrt(max(variance, 0.0)) / norm,
        efficiency=float(mean @ true) ** 2 / (norm**2 * second) if second > 0 else 0.0,
    )


def drift(problem: Chain, theta: Tensor, behaviour: Tensor) -> Drift:
    """Distances between the policies, under the behaviour distribution."""
    distribution = problem.distribution(behaviour)
    gap = (problem.logp(theta) - problem.logp(behaviour)).abs().mean(1)
    weight = problem.distribution(theta) / distribution
    share = 1 / float((distribution * weight.square()).sum())
    return Drift(float((distribution * gap).sum()), share, float(problem.value(behaviour)))


def train(
    problem: Chain, method: Method, lag: int, seed: int, *, steps: int = 100, rollouts: int = 32, rate: float = 2.0
) -> float:
    """Expected reward, averaged over training on rollouts `lag` versions old (as old as possible at the start)."""
    g = torch.Generator().manual_seed(seed)
    published = [start()]
    for step in range(steps):
        theta, behaviour = published[-1], published[max(step - lag, 0)]
        drawn = torch.multinomial(problem.distribution(behaviour), rollouts, replacement=True, generator=g)
        some = Chain(problem.actions[drawn], problem.before[drawn], problem.reward[drawn])
        mass = torch.full((rollouts,), 1 / rollouts, dtype=torch.float64)
        center = (
            _baseline(some, theta, behaviour, mass, some.distribution(behaviour))
            if method.baseline
            else some.reward.mean()
        )
        batch = stale_batch(some, theta, behaviour, mass, some.reward - center, proximal=method.proximal)
        direction = some.scores(theta, coefficients(method.objective, batch, rollouts)).sum(0).reshape(theta.shape)
        share = float(ess(some.distribution(theta) / some.distribution(behaviour))) if method.scaled else 1.0
        published.append(theta + rate * step_scale(share) * direction)
    return sum(float(problem.value(theta)) for theta in published) / len(published)


def _baseline(some: Chain, theta: Tensor, behaviour: Tensor, mass: Tensor, distribution: Tensor) -> Tensor:
    """VCPO's baseline: scores per path, weights π/μ, each path counted with its mass."""
    norms = some.scores(theta, torch.ones_like(some.actions, dtype=torch.float64)).norm(dim=1)
    return minimum_variance_baseline(some.reward, norms, some.distribution(theta) / distribution * mass.sqrt())


def main(folder: Path = Path("docs/measured"), *, say: Callable[[str], object] = print) -> None:
    """Measure, train, and write the table and the plot."""
    torch.set_num_threads(1)
    all_methods, train_lags = methods(), (0, 4, 16, 64)
    drifts: list[list[Drift]] = []
    measured: list[list[list[StalenessMeasure]]] = []
    learned: list[list[list[float]]] = []
    for seed in range(SEEDS):
        problem = chain(seed)
        published = versions(problem, seed, CURRENT)
        theta = published[CURRENT]
        stale = [published[CURRENT - lag] for lag in LAGS]
        drifts.append([drift(problem, theta, b) for b in stale])
        measured.append([[measure(problem, theta, b, m) for b in stale] for m in all_methods])
        learned.append([[train(problem, m, lag, seed) for lag in train_lags] for m in all_methods])
        say(f"problem {seed + 1} of {SEEDS}: expected reward {float(problem.value(theta)):.2f} at version {CURRENT}")
    names = [m.name for m in all_methods]
    results = Results(names, LAGS, _columns(measured, drifts), train_lags, _turn(learned), ROLLOUTS, SEEDS)
    page = write_page(folder, results)
    say(f"wrote {page}")


def _columns(
    measured: Sequence[Sequence[Sequence[StalenessMeasure]]], drifts: Sequence[Sequence[Drift]]
) -> dict[str, list[list[list[float]]]]:
    """Name → method → lag → one value per problem; drifts stand as one-row tables."""
    table = {
        field: _turn([[[getattr(cell, field) for cell in row] for row in one] for one in measured])
        for field in ("bias", "deviation", "efficiency")
    }
    return table | {
        field: _turn([[[getattr(cell, field) for cell in one]] for one in drifts]) for field in ("gap", "ess", "value")
    }


def _turn(values: Sequence[Sequence[Sequence[float]]]) -> list[list[list[float]]]:
    """problem → row → column becomes row → column → problem."""
    rows, columns = len(values[0]), len(values[0][0])
    return [[[one[r][c] for one in values] for c in range(columns)] for r in range(rows)]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
