"""Guide on one hard prompt with an explicit policy: what training on guided rollouts does to the unguided pass rate."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from studies.lab.claim import Measured
from studies.prompts.page import columns, table

Method = Literal["guide", "grpo", "in context", "always"]
METHODS: tuple[Method, ...] = ("grpo", "guide", "always", "in context")
Floats = NDArray[np.float64]
ANSWERS = 20
START = 0.002
"""Unguided chance of the right answer before training."""
GUIDED = 0.4
"""The same with the hint."""
CLIP = 0.2


def train(method: Method, seed: int, steps: int = 400, group: int = 8, lr: float = 0.5) -> tuple[float, float, int]:
    """Unguided and guided pass rate after training, and steps that were guided; all methods get 2 · `group` rollouts a
    step where Guide does.

    Answers are drawn from softmax(θ); the hint adds φ. "guide" draws `group` more with the hint when all failed and
    divides by the hinted distribution; "in context" trains what it drew under the hint, so φ learns as well; "always"
    guides every step.
    """
    rng = np.random.default_rng([19, seed])
    theta, phi, guided = np.zeros(ANSWERS), np.zeros(ANSWERS), 0
    theta[0] = np.log(START * (ANSWERS - 1) / (1 - START))
    phi[0] = np.log(GUIDED / (1 - GUIDED)) - np.log(START / (1 - START))
    for _ in range(steps):
        bare, hinted = _softmax(theta), _softmax(theta + phi)
        n = 2 * group if method == "grpo" else group
        drawn = rng.choice(ANSWERS, n, p=bare)
        distribution = bare[drawn]
        if method != "grpo" and (method == "always" or not (drawn == 0).any()):
            more, guided = rng.choice(ANSWERS, group, p=hinted), guided + 1
            drawn, distribution = np.concatenate([drawn, more]), np.concatenate([distribution, hinted[more]])
        reward = (drawn == 0).astype(float)
        if reward.std() == 0:
            continue
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        aided = np.arange(len(drawn)) >= n
        if method == "in context":
            # Aided rollouts are on policy in their own context.
            theta = theta + lr * (_gradient(bare, drawn, np.where(aided, 0, advantage)))
            step = _gradient(hinted, drawn, np.where(aided, advantage, 0))
            theta, phi = theta + lr * step, phi + lr * step
        else:
            ratio = bare[drawn] / distribution
            live = np.where(advantage > 0, ratio < 1 + CLIP, ratio > 1 - CLIP)
            theta = theta + lr * _gradient(bare, drawn, advantage * ratio * live)
    return float(_softmax(theta)[0]), float(_softmax(theta + phi)[0]), guided


def _gradient(policy: Floats, drawn: NDArray[np.int64], weight: Floats) -> Floats:
    one = np.eye(ANSWERS)[drawn] - policy
    return (weight[:, None] * one).sum(0) / len(drawn)


def _softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max())
    return e / e.sum()


def guide(seed: int) -> Measured:
    """Unhinted pass rate after training on one hard prompt: Guide against GRPO with twice the group."""
    value, _, guided = train("guide", seed)
    return Measured(value, train("grpo", seed)[0], acted={"steps guided": float(guided)})


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## A hint to one prompt (Guide)",
        f"One prompt of {ANSWERS} answers, pass rate {START:g}, {GUIDED:g} with the hint, after "
        "400 steps of 16 rollouts (8 where nothing is guided). Over 20 seeds. All parameters of the "
        "bare policy are shared with the hinted one.",
        table(["method", "without the hint", "with it"], [
            (m, columns(lambda s, m=m: train(m, s)[:2], 20)) for m in METHODS
        ]),
    ]  # fmt: skip
