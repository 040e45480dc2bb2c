"""How near a search comes to the distribution it samples from (DTS), on chains whose target is enumerated."""

from __future__ import annotations

import numpy as np

from rolltree.generate.independent import Independent
from rolltree_papers.dts import TreeSampling
from studies.lab.claim import Measured
from studies.latents.search import SCALE, distance

ROLLOUTS, REPEATS = 64, 4


def dts(seed: int) -> Measured:
    """Total variation distance to p·exp(λr)/Z: a Boltzmann tree's read-out, against as many independent paths weighed
    by exp(λr)."""
    seeds = range(REPEATS * seed, REPEATS * (seed + 1))
    ours = [distance(TreeSampling(ROLLOUTS, (1, 2), SCALE, select="boltzmann"), s) for s in seeds]
    paths = [distance(Independent(ROLLOUTS), s)[0] for s in seeds]
    forks = {"nodes with branches": float(np.mean([n for _, n in ours]))}
    return Measured(float(np.mean([d for d, _ in ours])), float(np.mean(paths)), acted=forks)
