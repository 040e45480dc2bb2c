"""Cog-Rethinker's chain on simulated hard prompts: is asking dead prompts otherwise worth more than asking others?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rolltree.control.history import History
from rolltree.control.order import Order
from rolltree.control.plan import Control, Uniform
from rolltree.recipe.registry import load_recipe
from studies.lab.claim import Measured
from studies.prompts.world import Floats, Log, PromptWorld, grouped, index, run, sigmoid

RESCUES = ("decompose", "reflect")
PROMPTS, ROLLOUTS, WIDTH = 32, 10_000, 8
SPREAD = 1.5
"""Deviation of what a rescue adds to a prompt's logit."""


@dataclass(slots=True)
class RescueWorld(PromptWorld):
    """Prompts whose logit moves by N(`helps`, 1.5²) where a rescue asks, a draw for each prompt and rescue: some are
    helped and others are led astray."""

    helps: float = 0.0
    moved: Floats = field(init=False)

    def __post_init__(self) -> None:
        # `super()` without arguments is the class before `slots=True` made it anew.
        PromptWorld.__post_init__(self)
        draws = np.random.default_rng([37, self.seed])
        self.moved = self.helps + SPREAD * draws.standard_normal((self.count, len(RESCUES)))

    def rate(self, order: Order) -> float:
        """The true pass rate of an order, by its arm alone."""
        i = index(order)
        more = float(self.moved[i, RESCUES.index(order.arm)]) if order.arm in RESCUES else 0.0
        return float(sigmoid(float(self.logits[i]) + more))


def rescued(control: Control, rounds: int, seed: int, helps: float) -> tuple[float, int, int]:
    """Prompts that teach (groups with variance, rescues included) per 1,000 rollouts, rollouts drawn, and those of
    rescues."""
    world = RescueWorld(ROLLOUTS, seed=seed, mean=-4.0, spread=2.0, gain=0.0, drift=0.0, helps=helps)
    history, state, logs = History(), control.start(), list[Log]()
    while sum(log.rollouts for log in logs) < ROLLOUTS:
        logs += run(control, world, 1, prompts=PROMPTS, width=WIDTH, rounds=rounds, state=state, history=history,
                    first=len(logs) + 1)  # fmt: skip
    spent = sum(log.rollouts for log in logs)
    groups = [group for log in logs for group in grouped(log.delivered).values()]
    asked = sum(d.n for group in groups for d in group if d.order.arm in RESCUES)
    return 1000 * sum(log.effective for log in logs) / spent, spent, asked


def cog_rethinker(seed: int) -> Measured:
    """Hard prompts that teach per 1,000 rollouts, where a rescue adds N(1.5, 1.5²) to a logit: the recipe's chain
    against its baseline `dapo`, which asks other prompts where all fail. The curve is over the mean of what is added.
    """
    parts, plain = load_recipe("cog_rethinker").build(), load_recipe("dapo").build()
    assert parts.control is not None
    found = {helps: rescued(parts.control, parts.rounds, seed, helps) for helps in (-1.5, 0.0, 1.5)}
    value, _, asked = found[1.5]
    others = rescued(plain.control or Uniform(), plain.rounds, seed, 1.5)[0]
    curve = (list(found), [each for each, _, _ in found.values()])
    return Measured(value, others, {"prompts that teach, by mean help": curve}, {"budget/arm/decompose": float(asked)})
