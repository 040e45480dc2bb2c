"""Noise of the gradient against the size of the batch: a tabular policy over questions, exactly known.

Each of `QUESTIONS` questions has `ANSWERS` answers of which one is right; what is seen of a reward is noisy where a
check says so. Samples are counted in rollouts.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rolltree.control.allocate import norm_test
from studies.lab.claim import Measured

Floats = NDArray[np.float64]
QUESTIONS, ANSWERS, GROUP = 8, 6, 4
TARGET, RATE, START, MOST, ETA = 0.9, 2.0, 4, 64, 0.5
NOISE = 1.0
"""Deviation of what is seen of a reward: without it no batch is too small here."""


def softmax(z: Floats) -> Floats:
    """Along the last axis."""
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


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
