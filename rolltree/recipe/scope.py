"""SCOPE: failed rollouts corrected step by step instead of thrown away (the card's name; no paper id was readable)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.methods.scope import CORRECTOR, Repaired
from rolltree.generate.search.values import judge_of
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Scope:
    """A failed rollout is cut before its first bad step, corrected from there, and takes its own place in its group.

    What the corrector wrote stands as the policy's own forced run behind the policy's own steps: it is trained on, was
    not sampled, and its credit has the shaped weight π/(π + γ) instead of an importance ratio. `corrector` is another
    model with the policy's tokens; without one the policy itself writes again, and only what is right is kept. τ, the
    share that is repaired, γ and the group are reconstructed. A judge that cuts at a low step which is not the wrong
    one keeps the error, and then the verifier refuses what follows. Its evidence is a small policy's accuracy,
    against the better of plain groups and whole rollouts from as many tokens of the corrector, which do harm there.
    """

    card: ClassVar[Card] = Card(
        "scope", "Step-wise correction of failed rollouts", "SCOPE", 2025,
        "46.6 on average on mathematics, 53.4 out of distribution, 13.5 % more diversity",
        ("filter", "generate", "replay", "objective"), "grpo",
        Evidence("accuracy of the trained policy", "the better of plain groups and a corrector's whole rollouts",
                 least=0.02, seeds=10, check="studies.search.repair:learned"),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    group: int = 8
    worth: str = "step"
    """Who grades steps: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    threshold: float = 0.5
    """τ: the first step graded below it is the error."""
    most: float = 1.0
    """Largest share of a group's failed rollouts that are repaired; 1 may leave none that failed."""
    tries: int = 1
    """Corrections of one rollout until one is right."""
    corrector: str = ""
    """Model that corrects: a name, a folder or a hub id; "" = the policy itself."""
    delimiter: str = ","
    """What ends a step."""
    gamma: float = 0.1
    """γ of the shaped weight of corrected tokens."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Rollouts with repairs, group credit, shaped forced tokens under the clipped surrogate."""
        from rolltree.objective.shaped import ShapedForced

        check_group("scope", self.group)
        if not self.delimiter or not 0 < self.most <= 1 or self.tries < 1:
            raise RecipeError(
                f"scope: delimiter={self.delimiter!r} ends a step, most={self.most:g} is a share above 0, and "
                f"tries={self.tries} is 1 or more"
            )
        strategy = Repaired(self.group, judge_of(self.worth), self.threshold, self.most, self.tries, self.delimiter)
        objective = load_objective(
            "clipped", clip_low=self.clip, clip_high=self.clip, correction=(ShapedForced(self.gamma),)
        )
        peers = {CORRECTOR: Peer(self.corrector, trained=False)} if self.corrector else {}
        return Parts("scope", strategy, load_credit("grpo"), objective, averaging="sequence", peers=peers)
