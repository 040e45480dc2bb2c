"""Bias and variance of a credit against the true policy gradient, with standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rolltree.credit.advantage import Credit
from rolltree.credit.fold import Multiplicity, fold, leaf_weights
from rolltree.tree import Tree
from rolltree.tree.table import Floats, table
from studies.exact.forest import Forks, sample
from studies.exact.problem import Problem, solve


@dataclass(frozen=True, slots=True)
class ExactMeasure:
    """An estimator ĝ of g = ∇J from one tree (or `prompts` trees); the mean is over many."""

    scale: float
    """c = ⟨E ĝ, g⟩ / ⟨g, g⟩: 1 for an unbiased estimator; any c > 0 only rescales the step."""
    scale_se: float
    bias: float
    """‖E ĝ / c − g‖ / ‖g‖, what is left after rescaling, freed of the sampling error of the mean."""
    bias_se: float
    """Size the bias would appear to have by chance."""
    noise: float
    """√(trace of the covariance of ĝ / c) / ‖g‖: how noisy one estimate is."""
    noise_se: float
    zmax: float
    """Largest |z| of a component of E ĝ − g: an unbiased estimator stays below about 4."""

    @property
    def unbiased(self) -> bool:
        """Whether no component of the mean differs from the true gradient beyond chance."""
        return self.zmax < 4.5


def gradients(
    trees: list[Tree], credit: Credit, policy: Floats, *, prompts: int = 1, multiplicity: Multiplicity = "per_leaf"
) -> Floats:
    """(estimates, rows · actions) gradient estimates, one per `prompts` trees; each step is credited alone.

    Per step: mean over leaves of Σ_t A_t ∇log π(a_t), the sum over a path's actions undivided.
    """
    rows, actions = policy.shape
    out: list[Floats] = []
    batch = len(trees) if prompts == 0 else prompts
    for first in range(0, len(trees), batch):
        tab = table(trees[first : first + batch])
        advantage = credit(tab)
        weights = leaf_weights(tab, "fixed", counted=advantage.counted, fixed_length=1)
        # One estimate per tree when credited together, else one per step: weights average over the leaves of each.
        owner = np.arange(len(tab.trees)) if prompts == 0 else np.zeros(len(tab.trees), np.int64)
        use = tab.live if advantage.counted is None else tab.live & advantage.counted
        size = np.bincount(owner[tab.leaf_tree], use, minlength=int(owner.max()) + 1)
        weights = np.where(weights > 0, 1 / np.maximum(size, 1)[owner[tab.leaf_tree]], 0.0)
        folded = fold(tab, advantage, weights, multiplicity)
        push = folded.gain + folded.loss
        at = np.flatnonzero(tab.loss_mask)
        row = np.concatenate([n.notes["row"] for n in tab.nodes if n.trainable]).astype(np.int64)
        taken = tab.flat("actions")[at].astype(np.int64)
        step = owner[np.repeat(tab.tree, tab.length)[at]]
        cells = (int(owner.max()) + 1) * rows
        hit = np.bincount((step * rows + row) * actions + taken, push[at], minlength=cells * actions)
        mass = np.bincount(step * rows + row, push[at], minlength=cells)
        grad = hit.reshape(-1, rows, actions) - mass.reshape(-1, rows, 1) * policy
        out.append(grad.reshape(-1, rows * actions))
    return np.concatenate(out)


def summarise(estimates: Floats, truth: Floats) -> ExactMeasure:
    """Bias and noise of estimates of a known vector; standard errors from 20 blocks."""
    g = truth.ravel()
    norm2 = float(g @ g)
    n = len(estimates)
    mean, var = estimates.mean(axis=0), estimates.var(axis=0, ddof=1)
    scale = float(mean @ g) / norm2
    c = scale if abs(scale) > 1e-12 else 1.0
    chance2 = float(var.sum()) / n / c**2
    away2 = float(((mean / c - g) ** 2).sum())
    blocks = [b for b in np.array_split(estimates, 20) if len(b) > 1]
    scales = [float(b.mean(axis=0) @ g) / norm2 for b in blocks]
    noises = [np.sqrt(float(b.var(axis=0, ddof=1).sum()) / norm2) / abs(c) for b in blocks]
    error = np.sqrt(var / n)
    z = np.divide(np.abs(mean - g), error, out=np.zeros(len(g)), where=error > 1e-12)
    z = np.where((error <= 1e-12) & (np.abs(mean - g) > 1e-9), np.inf, z)
    return ExactMeasure(
        scale=scale, scale_se=float(np.std(scales, ddof=1) / np.sqrt(len(scales))),
        bias=float(np.sqrt(max(away2 - chance2, 0.0) / norm2)), bias_se=float(np.sqrt(chance2 / norm2)),
        noise=float(np.sqrt(var.sum() / norm2)) / abs(c), noise_se=float(np.std(noises, ddof=1) / np.sqrt(len(noises))),
        zmax=float(z.max()),
    )  # fmt: skip


def measure_all(
    credits: Mapping[str, Credit], problem: Problem, *, group: int = 8, forks: Forks = "flat", noise: float = 0.0,
    critic: float = 0.0, trees: int = 2000, prompts: int = 0, multiplicity: Multiplicity = "per_leaf", seed: int = 0,
) -> dict[str, ExactMeasure]:  # fmt: skip
    """Measure several credits on the same forests. `prompts` trees make a step; 0 credits all trees at once and takes
    each as its own estimate, which is right (and fast) for credits that never look beyond a tree."""
    solved = solve(problem)
    rng = np.random.default_rng(seed)
    forest = sample(problem, solved, rng, trees=trees, group=group, forks=forks, noise=noise, critic=critic)
    return {
        name: summarise(
            gradients(forest, credit, problem.policy, prompts=prompts, multiplicity=multiplicity), solved.gradient
        )
        for name, credit in credits.items()
    }


def measure(
    credit: Credit, problem: Problem, *, group: int = 8, forks: Forks = "flat", noise: float = 0.0, critic: float = 0.0,
    trees: int = 2000, prompts: int = 0, multiplicity: Multiplicity = "per_leaf", seed: int = 0,
) -> ExactMeasure:  # fmt: skip
    """Measure one credit; see `measure_all`."""
    return measure_all(
        {"it": credit}, problem, group=group, forks=forks, noise=noise, critic=critic, trees=trees, prompts=prompts,
        multiplicity=multiplicity, seed=seed,
    )["it"]  # fmt: skip
