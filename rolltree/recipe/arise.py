"""ARISE: skills that a policy concludes from what it solved, and is shown again (arXiv 2603.16060)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.arise import CONCLUDE, Arise
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.filter.skilled import SkillBonus
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.varying import Knob


@dataclass(frozen=True, slots=True)
class AriseRecipe:
    """DAPO's groups beside a library: for half a run it fills, then groups are shown the skill that is likeliest there.

    All rollouts of a group are shown the same skill, so its bonus doubles what every success of them earns, and an
    advantage that is divided by the deviation does not see it: what it moves are the utilities, by which the library
    keeps and drops. Where it differs: a skill stands behind the prompt; the four stages of a document's validation and
    that a group's mean moves a utility are reconstructed; texts are English, so the embedded policy concludes nothing
    but its own shortest successes. The first utility of a new skill compares its trial with the group it was concluded
    from, where the paper takes unaided rollouts: in the second phase that group may have been shown a skill. Only
    groups whose outcomes differ conclude one. At the published `sigma=1` the gate hardly opens with ten documents; the
    evidence is on simulated prompts with `sigma=0.1`, and supposes that documents of a prompt's own family are likelier
    there.
    """

    card: ClassVar[Card] = Card(
        "arise", "Skills concluded, kept and shown", "2603.16060", 2026,
        "better than GRPO and memories beside it on seven mathematics sets, by more on Omni-MATH (Qwen3-4B)",
        ("generate", "control", "replay"), "dapo",
        Evidence("prompts solved with the library's choice", "a random skill of the same library, or none", "higher",
                 0.02, seeds=5, check="studies.prompts.skills:arise"),
        task="countdown", counter=Counter("budget/arm/skilled"),
    )  # fmt: skip
    group: int = 8
    use: Knob = "0, 1 at 50%"
    """Whether groups are shown skills: 0 in the first phase (500 steps in the paper), 1 in the second."""
    cache: int = 10
    """Skills that are chosen from."""
    reservoir: int = 100
    """Skills that may come back."""
    sigma: float = 1.0
    """Temperature of the choice, in nats per token."""
    gate: float = 0.35
    """Least chance of the best skill for any to be shown."""
    explore: float = 0.1
    """Chance of a random one instead."""
    bonus: float = 1.0
    """What a success with a skill earns beside its outcome."""
    conclude: str = CONCLUDE
    """Asks for a new skill: {prompt} and {traces} are filled in; "" = the shortest success is one."""
    clip: float = 0.2
    rounds: int = 4

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, skills by the control, mixed groups only, group credit, clipped surrogate."""
        check_group("arise", self.group)
        return Parts(
            "arise", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="token",
            filters=(Mixed(),), shapers=(SkillBonus(self.bonus),), rounds=self.rounds,
            control=Arise(bool(self.use), self.cache, self.reservoir, self.sigma, self.gate, self.explore, self.bonus,
                          conclude=self.conclude),
        )  # fmt: skip
