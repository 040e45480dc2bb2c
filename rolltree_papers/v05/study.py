"""Baselines shrunk to a prior (V0.5) on simulated prompts, held against group means."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rolltree.control.history import Beliefs
from rolltree.control.plan import Control
from rolltree_papers.v05 import V05, shrinkage
from studies.lab.claim import Measured
from studies.prompts.page import columns, table
from studies.prompts.world import Floats, PromptWorld, grouped, index, run

PRIORS = ("right", "off by 0.1", "half of them random", "random", "always 0.9")


def baseline_error(prior: str, seed: int, count: int = 400) -> tuple[float, float, float, int]:
    """Mean squared error of V0.5's baseline, of its shrinkage alone at 4 rollouts, rollouts per prompt, and baselines
    that are a point or more off their group's mean."""
    rng = np.random.default_rng([13, seed])
    world = PromptWorld(count, seed=seed, mean=0.0, spread=1.5, gain=0.0, drift=0.0)
    guess = _prior(prior, world.rates, rng)
    errors, off = list[tuple[float, float]](), 0
    control, state = V05(), Beliefs()
    state.held = {f"p{i}": [200 * v - 1, 199 - 200 * v, 0.0] for i, v in enumerate(guess)}
    (log,) = run(control, world, 1, prompts=count, state=state)
    for group in grouped(log.delivered).values():
        i, rewards = index(group[0].order), [r for d in group for r in d.rewards]
        errors.append(tuple((_shrunk(guess[i], r) - world.rates[i]) ** 2 for r in (rewards, rewards[: control.least])))
        off += abs(_shrunk(guess[i], rewards) - float(np.mean(rewards))) >= 0.01
    ours, alone = np.mean(errors, 0)
    return float(ours), float(alone), log.rollouts / count, off


def v05(seed: int) -> Measured:
    """Baseline error with a prior half of which is random, against group means of as many rollouts."""
    ours, _, used, off = baseline_error("half of them random", seed)
    world = PromptWorld(400, seed=seed, mean=0.0, spread=1.5)
    acted = {"baselines moved by the prior": float(off), "rollouts added to a prompt": used - V05().least}
    return Measured(ours, float((world.rates * (1 - world.rates)).mean() / used), acted=acted)


def _shrunk(prior: float, rewards: list[float]) -> float:
    mean = float(np.mean(rewards))
    w = shrinkage(float(prior), mean, len(rewards))
    return w * float(prior) + (1 - w) * mean


def _prior(kind: str, rates: Floats, rng: np.random.Generator) -> Floats:
    random = rng.uniform(0.02, 0.98, len(rates))
    made = {
        "right": rates,
        "off by 0.1": rates + rng.choice([-0.1, 0.1], len(rates)),
        "half of them random": np.where(rng.random(len(rates)) < 0.5, rates, random),
        "random": random,
        "always 0.9": np.full(len(rates), 0.9),
    }[kind]
    return np.clip(made, 0.02, 0.98)


CONTROLS: dict[str, Callable[[PromptWorld], Control]] = {"v05": lambda _: V05()}
"""What runs beside the other controls (`studies.prompts.page`)."""


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Priors (V0.5)",
        "Squared error of the baseline over 400 prompts, logits N(0, 1.5²).",
        table(["prior", "shrunk, sequential", "group mean, as many rollouts", "shrunk, 4 rollouts", "rollouts"], [
            (prior, columns(lambda s, k=prior: _errors(k, s))) for prior in PRIORS
        ], 4),
    ]  # fmt: skip


def _errors(kind: str, seed: int) -> tuple[float, float, float, float]:
    ours, alone, used, _ = baseline_error(kind, seed)
    rates = PromptWorld(400, seed=seed, mean=0.0, spread=1.5).rates
    return ours, float((rates * (1 - rates)).mean() / used), alone, used
