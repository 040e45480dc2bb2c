"""VADE: variance-aware dynamic sampling (arXiv 2511.18902)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.control.history import Beliefs
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.pool import Pool, check_pool, highest
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import storable

# Variance-aware dynamic sampling: prompts are chosen by how uncertain their outcome is believed to be (VADE).


@storable
@dataclass(slots=True)
class VadeState:
    """What is believed of every prompt, and which are candidates."""

    pool: Pool
    beliefs: Beliefs


@dataclass(frozen=True, slots=True)
class Vade:
    """The prompts of a pool with the highest θ(1−θ), θ drawn from each one's discounted Beta posterior.

    The score is reconstructed (the binary entropy ranks alike), and so are the two decay factors. Unseen prompts look
    ideal under Beta(1, 1), so a pool is first swept once. `thompson=False` scores the posterior mean instead.
    """

    name: ClassVar[str] = "vade"
    paper: ClassVar[str] = "2511.18902"
    needs: ClassVar[frozenset[str]] = frozenset()
    pool: int = 256
    """Candidate prompts."""
    fresh: int = 0
    """How many of them are replaced by new ones each step."""
    visit: float = 0.9
    """What is left of a prompt's evidence when it is visited again."""
    idle: float = 0.995
    """What is left of all evidence after a step."""
    thompson: bool = True
    """Whether a prompt's pass rate is drawn from what is believed of it, or is its mean."""

    def __post_init__(self) -> None:
        check_pool(self.name, self.pool, self.fresh)
        if not (0 <= self.visit <= 1 and 0 < self.idle <= 1):
            raise ControlError(f"vade: visit={self.visit} and idle={self.idle} are shares that are kept; give 0 to 1")

    def start(self) -> VadeState:
        """Nothing is known."""
        return VadeState(Pool(self.pool, self.fresh), Beliefs(self.visit, self.idle))

    def plan(self, step: Step, state: VadeState) -> Plan:
        """One round."""
        beliefs = state.beliefs
        beliefs.step = step.number
        items = state.pool.items(step.supply)
        theta = np.array([beliefs.draw(i.id, step.rng) if self.thompson else beliefs.mean(i.id) for i in items])
        chosen = highest(theta * (1 - theta), step.prompts, step.rng)
        prompts = step.prompts_of([items[i] for i in chosen])
        delivered = yield [Order(p, why=f"θ = {theta[i]:.2f}", last=True) for p, i in zip(prompts, chosen, strict=True)]
        for d in delivered:
            beliefs.observe(d.order.prompt.uid, d.solved, d.n)


@dataclass(frozen=True, slots=True)
class VadeRecipe:
    """GRPO on the prompts of a pool whose outcome is believed to be least certain; nothing is sampled twice or thrown
    away. What is reconstructed stands at the control.
    """

    card: ClassVar[Card] = Card(
        "vade", "Variance-aware dynamic sampling", "2511.18902", 2025,
        "beats GRPO, GSPO and filtered sampling on multimodal reasoning without extra rollouts", ("control",), "grpo",
        Evidence("share of groups with variance", "uniform from the same pool", "higher", 0.05, seeds=5,
                 check="rolltree_papers.vade.study:vade"),
        counter=Counter("budget/revisited"),
    )  # fmt: skip
    group: int = 8
    pool: int = 256
    """Candidate prompts."""
    visit: float = 0.9
    """What is left of a prompt's evidence when it is visited again."""
    idle: float = 0.995
    """What is left of all evidence after a step."""
    thompson: bool = True
    """Whether prompts are drawn by chance from what is believed, instead of the best guess."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with another choice of prompts."""
        check_group("vade", self.group)
        return Parts(
            "vade", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Vade(self.pool, visit=self.visit, idle=self.idle, thompson=self.thompson),
        )  # fmt: skip
