"""How often a step of policy gradient takes mass from the right answers, by how many answers are sampled (BroRL)."""

from __future__ import annotations

import numpy as np

from rolltree.lab.claim import Measured

ANSWERS, RIGHT = 300, 30
"""Answers there are, and how many of them are right."""


def falls(rollouts: int, seed: int, trials: int = 400, rate: float = 0.1, seen: list[int] | None = None) -> float:
    """Share of steps in which the probability of a right answer falls, from random logits, without a baseline.

    The exact mass before and after z ← z + (rate / N) Σ r (e_a − p), r = 1 where the sampled answer a is right and −1
    where it is wrong. What was not sampled is pushed by the rest alone, and that push is what many rollouts shrink.
    `seen` takes how many different answers each step sampled.
    """
    rng, count = np.random.default_rng([31, seed]), 0
    for _ in range(trials):
        z = rng.normal(0, 2, ANSWERS)
        p = np.exp(z - z.max())
        p /= p.sum()
        times = rng.multinomial(rollouts, p)
        if seen is not None:
            seen.append(int(np.count_nonzero(times)))
        signed = times * np.where(np.arange(ANSWERS) < RIGHT, 1.0, -1.0)
        new = np.exp(z + rate / rollouts * (signed - p * signed.sum()))
        count += new[:RIGHT].sum() / new.sum() < p[:RIGHT].sum()
    return count / trials


def brorl(seed: int) -> Measured:
    """64 rollouts of a prompt against 4."""
    many, few = list[int](), list[int]()
    value, plain = falls(64, seed, seen=many), falls(4, seed, seen=few)
    return Measured(value, plain, acted={"answers seen beyond those of 4": float(np.mean(many) - np.mean(few))})
