"""ARISE's library on simulated families of prompts: what is concluded may help, do nothing or harm.

A document belongs to the family of the prompt it was concluded from, and there it is likelier by `GAP` nats per token,
read with an error of a third of that. Whether it helps is not seen in its likelihood: only utilities can tell. Nothing
is learned but the library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np

from rolltree.control.order import Delivery, Order
from rolltree.control.plan import Control, Uniform
from rolltree_papers.arise import FIELDS, Arise, AriseState
from studies.lab.claim import Measured
from studies.prompts.world import PromptWorld, grouped, index, run, sigmoid

FAMILIES, PROMPTS, STEPS, LAST = 5, 16, 120, 60
GAP = 0.3
EFFECTS, CHANCES = (2.0, 0.0, -1.5), (0.4, 0.4, 0.2)
"""What a document adds to the logits of its family, and how often the policy concludes such a one."""
SIGMA = 0.1


@dataclass(slots=True)
class SkillWorld(PromptWorld):
    """Prompts in families, whose skills are written by a policy that is right about them now and then."""

    made: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Name of a document → its family and its effect."""

    def effect(self, order: Order) -> float:
        """What the skill that an order shows adds to the logit."""
        shown = "" if order.brief is None else order.brief.text
        name = next((n for n in self.made if f" {n}:" in shown), "")
        family, effect = self.made.get(name, (-1, 0.0))
        return effect if family == index(order) % FAMILIES else 0.0

    def rate(self, order: Order) -> float:
        """The true pass rate of an order, with what it is shown."""
        return float(sigmoid(float(self.logits[index(order)]) + self.effect(order)))

    def serve(self, order: Order, width: int) -> Delivery:
        """Read, write a document, or answer."""
        if order.given:
            mine = index(order) % FAMILIES
            likely = [self._likely(str(w.turns[0]), mine) for w in order.given]
            return Delivery(order, (0.0,) * len(likely), logp=tuple(likely))
        if order.arm == "conclude":
            name = f"s{len(self.made)}"
            self.made[name] = (index(order) % FAMILIES, float(self.rng.choice(EFFECTS, p=CHANCES)))
            text = json.dumps({f: name if f == "skill_name" else "x" for f in FIELDS})
            return Delivery(order, (), (10,), 10, texts=(text,))
        # By name: dataclasses with slots are made anew, and a bare super() is of the class before.
        return PromptWorld.serve(self, order, width)

    def _likely(self, text: str, family: int) -> float:
        own = self.made.get(text.split(":", maxsplit=1)[0], (-1, 0.0))[0] == family
        return -2.0 + GAP * own + float(self.rng.normal(0, GAP / 3))


def trained(control: Control, seed: int) -> tuple[float, float, AriseState | None]:
    """Share solved in the last steps, groups that were shown a skill, and the library at the end."""
    world = SkillWorld(400, seed=seed, mean=-1.0, spread=1.0, gain=0.0, drift=0.0)
    state = control.start()
    logs = run(control, world, STEPS, prompts=PROMPTS, width=8, state=state)[-LAST:]
    groups = [g for log in logs for g in grouped(log.delivered).values()]
    solved = sum(d.solved for g in groups for d in g) / sum(d.n for g in groups for d in g)
    shown = sum(d.order.arm == "skilled" for g in groups for d in g) / len(groups)
    return float(solved), float(shown), state if isinstance(state, AriseState) else None


def arise(seed: int) -> Measured:
    """Share solved with the likeliest skill, against a random one of a library kept alike, or none: the better."""
    ours, shown, _ = trained(Arise(sigma=SIGMA), seed)
    random = trained(Arise(sigma=SIGMA, gate=0.0, explore=1.0), seed)[0]
    none = trained(Uniform(), seed)[0]
    return Measured(ours, max(random, none), acted={"budget/arm/skilled": shown})


def told_apart(seed: int, sigma: float = SIGMA) -> float:
    """Mean effect of the cached skills that were concluded, beside the mean of all that were: what utilities sorted."""
    world = SkillWorld(400, seed=seed, mean=-1.0, spread=1.0, gain=0.0, drift=0.0)
    control = Arise(sigma=sigma)
    state = control.start()
    run(control, world, STEPS, prompts=PROMPTS, width=8, state=state)
    cached = [world.made[s.name][1] for s in state.library.cache if s.name in world.made]
    return float(np.mean(cached)) - float(np.mean([effect for _, effect in world.made.values()]))
