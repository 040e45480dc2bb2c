"""Large batches and step sizes with a clipped objective, on bandits."""

from __future__ import annotations

import numpy as np

from studies.exact.batches import ANSWERS, softmax
from studies.lab.claim import Measured


def clipped_run(
    seed: int, envs: int, minibatch: int, samples: int, *, rate: float = 0.2, cut: bool = False
) -> tuple[float, int]:
    """Expected reward of a bandit at the end of PPO with `envs` samples a step in updates of `minibatch` samples, and
    samples that an update of a step had moved so far that a later one clipped them.

    Arm values 0.2 apart under noise of deviation 2; normalised advantages, clip 0.2, two passes a step, Adam.
    The rate is the lowest of .02, .05, .1, .2, .5 at which 16 environments stand still (.95). `cut` divides it by five
    at half of the samples.
    """
    rng = np.random.default_rng([86, seed])
    value = np.linspace(0.0, 1.0, ANSWERS)
    z, first, second, updates, clipped = np.zeros(ANSWERS), np.zeros(ANSWERS), np.zeros(ANSWERS), 0, 0
    for step in range(samples // envs):
        now = rate / 5 if cut and step * envs * 2 >= samples else rate
        old = softmax(z)
        arm = rng.choice(ANSWERS, size=envs, p=old)
        reward = value[arm] + rng.normal(0, 2, envs)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-8)
        for _ in range(2):
            for mine in np.array_split(rng.permutation(envs), max(envs // minibatch, 1)):
                p = softmax(z)
                a, adv = arm[mine], advantage[mine]
                ratio = p[a] / old[a]
                live = np.where(adv > 0, ratio < 1.2, ratio > 0.8)
                clipped += int((~live).sum())
                pushed = np.where(live, ratio * adv, 0.0)
                gradient = np.bincount(a, pushed, ANSWERS) - p * pushed.sum()
                gradient, updates = gradient / len(mine), updates + 1
                first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
                z = z + now * first / (1 - 0.9**updates) / (np.sqrt(second / (1 - 0.99**updates)) + 1e-8)
    return float(softmax(z) @ value), clipped


def ppo_million(seed: int) -> Measured:
    """512 environments in updates of 16 samples against the same in updates of 128 (one count of updates a step)."""
    runs = range(8)
    wide = [clipped_run(8 * seed + r, 512, 16, 16_384) for r in runs]
    large = [clipped_run(8 * seed + r, 512, 128, 16_384) for r in runs]
    value, plain = (float(np.mean([reward for reward, _ in side])) for side in (wide, large))
    return Measured(value, plain, acted={"samples clipped by the updates of a step": float(sum(n for _, n in wide))})
