"""Batches that grow with the noise of the gradient, held against batches of one size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rolltree.control.allocate import norm_test
from studies.exact.batches import ANSWERS, ETA, GROUP, MOST, NOISE, QUESTIONS, RATE, START, TARGET, Floats, softmax
from studies.lab.claim import Measured


def prompt_gradients(z: Floats, prompts: int, rng: np.random.Generator) -> Floats:
    """(prompts, QUESTIONS, ANSWERS): each prompt's policy gradient from a group centred on its mean."""
    out = np.zeros((prompts, *z.shape))
    p = softmax(z)
    for i, q in enumerate(rng.integers(QUESTIONS, size=prompts)):
        said = rng.choice(ANSWERS, size=GROUP, p=p[q])
        right = (said == 0) + rng.normal(0, NOISE, GROUP)
        advantage = right - right.mean()
        out[i, q] = (np.eye(ANSWERS)[said] - p[q]).T @ advantage / GROUP
    return out


def grown(seed: int, start: int, most: int, eta: float = ETA, budget: int = 200_000) -> tuple[int, int, list[int]]:
    """Rollouts and updates until the mean chance of being right is `TARGET`, and the batches on the way."""
    rng = np.random.default_rng([114, seed])
    z, prompts, spent, sizes = np.zeros((QUESTIONS, ANSWERS)), start, 0, list[int]()
    while softmax(z)[:, 0].mean() < TARGET and spent < budget:
        each = prompt_gradients(z, prompts, rng)
        mean = each.mean(0)
        z += RATE * mean
        spent += prompts * GROUP
        sizes.append(prompts)
        square = float((mean**2).sum())
        variance = float(((each - mean) ** 2).sum()) / max(prompts - 1, 1)
        prompts = norm_test(variance / square if square else None, prompts, eta, most)
    return spent, len(sizes), sizes


def adadagrad(seed: int) -> Measured:
    """Rollouts to the target with batches that grow, as a share of those with the largest batch from the start."""
    spent, _, sizes = grown(seed, START, MOST)
    larger = sum(b > a for a, b in pairwise(sizes))
    return Measured(spent / grown(seed, MOST, MOST)[0], 1.0, acted={"batches that grew": float(larger)})
