"""Cog-Rethinker's chain on simulated hard prompts: what being asked otherwise is worth beside being asked again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.control.methods.cog_rethinker import CogRethinker
from rolltree.control.order import Order
from rolltree.control.plan import Control, Uniform
from rolltree.lab.claim import Measured
from studies.prompts.world import PromptWorld, grouped, index, run, sigmoid

RESCUES = ("decompose", "reflect")
PROMPTS, STEPS = 32, 20


@dataclass(slots=True)
class RescueWorld(PromptWorld):
    """Prompts whose logit is higher by `helps` where a rescue asks."""

    helps: float = 0.0

    def rate(self, order: Order) -> float:
        """The true pass rate of an order, by its arm alone."""
        return float(sigmoid(float(self.logits[index(order)]) + self.helps * (order.arm in RESCUES)))


def rescued(control: Control, seed: int, helps: float, width: int = 8) -> tuple[float, int, int]:
    """Share of hard prompts with a right answer, rollouts in all, and those of rescues."""
    world = RescueWorld(PROMPTS * STEPS, seed=seed, mean=-4.0, spread=2.0, gain=0.0, drift=0.0, helps=helps)
    logs = run(control, world, STEPS, prompts=PROMPTS, width=width)
    groups = [group for log in logs for group in grouped(log.delivered).values()]
    asked = sum(d.n for group in groups for d in group if d.order.arm in RESCUES)
    return float(np.mean([any(d.solved for d in g) for g in groups])), sum(log.rollouts for log in logs), asked


def cog_rethinker(seed: int) -> Measured:
    """Hard prompts with a right answer, where a rescue adds 1.5, against no fewer rollouts of the direct prompt: as
    many for every prompt, or the same rounds over what is dead, which is what asking again alone is worth.
    """
    ours, rollouts, asked = rescued(CogRethinker(), seed, 1.5)
    plain = rescued(Uniform(), seed, 0.0, width=-(-rollouts // (PROMPTS * STEPS)))[0]
    again = rescued(CogRethinker(), seed, 0.0)[0]
    return Measured(ours, max(plain, again), acted={"budget/arm/decompose": float(asked)})
