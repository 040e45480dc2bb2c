"""Environments of many levels whose skills are known: what following the policy is worth (SCALER)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.control.order import Delivery
from rolltree.control.plan import Control, Uniform
from rolltree.task.items import ENVIRONMENT
from rolltree.task.protocol import Item
from rolltree_papers.scaler import Scaler, ScalerState
from studies.lab.claim import Measured
from studies.prompts.world import ANSWER, Floats, PromptWorld, grouped, index, mass, run

KINDS = 8
LEVELS = 12


@dataclass(slots=True)
class Ladders(PromptWorld):
    """Environments with a skill each; level l is solved with probability sigmoid(skill − l / 2).

    An item is an instance of one environment and level, in order and over and over. Training on a group raises its
    environment's skill, at all levels, by its Σ|A|.
    """

    gain: float = 0.02
    drift: float = 0.0
    skills: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.skills = np.random.default_rng([31, self.seed]).uniform(0.5, 3.0, KINDS)
        self.logits = (self.skills[:, None] - np.arange(LEVELS) / 2).ravel()
        PromptWorld.__post_init__(self)

    def _item(self, i: int) -> Item:
        kind, level = divmod(i, LEVELS)
        return Item(f"p{i}", f"{kind} at {level}", ANSWER, level, {ENVIRONMENT: f"e{kind}"})

    def pass_time(self, delivered: Sequence[Delivery]) -> None:
        """One step of training."""
        for group in grouped(delivered).values():
            kind = index(group[0].order) // LEVELS
            self.logits[kind * LEVELS : (kind + 1) * LEVELS] += self.gain * mass(group) / 4
        self.skills = self.logits[::LEVELS].copy()


def informative(control: Control, seed: int, steps: int = 60, state: object = None) -> tuple[float, float]:
    """Share of groups with variance, and what the environments' mean skill gained. A `state` that is given learns."""
    world = Ladders(seed=seed)
    before = float(world.skills.mean())
    logs = run(control, world, steps, prompts=32, state=state)
    share = sum(log.effective for log in logs) / sum(log.groups for log in logs)
    return share, float(world.skills.mean()) - before


def scaler(seed: int) -> Measured:
    """Share of groups with variance: levels that follow each environment's skill against all levels evenly."""
    state = ScalerState()
    value = informative(Scaler(), seed, state=state)[0]
    risen = sum(env.level > env.levels[0] for env in state.known.values())
    acted = {"environments above their lowest level": float(risen), "environments that made room": float(state.retired)}
    return Measured(value, informative(Uniform(), seed)[0], acted=acted)
