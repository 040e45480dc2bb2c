"""DART: curated rollouts of GUI agents (arXiv 2509.23866)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.dart import Dart
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.filter.uncertain import UncertainTurns
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class DartRecipe:
    """GRPO with widths and horizons by what was seen of each prompt, rescue by past successes, and its uncertain turns.

    Rescued rollouts are not the policy's of today: the weight π/π_sampled, at most 1, holds for them as for all others,
    yet they enter the group's mean, as published. Repeated prompts are what it is about: train with `--items N` or on
    data. The system around it (environments that free themselves one by one, engines that reload in turn, the two
    newest versions) is `--scheduler dart`. Left out: a pool of successes collected before, the dual clip at 10 of the
    released trainer, and its ratios by step. Also left out: that a prompt is trained on only with 8 rollouts of the two
    newest versions, and that prompts never tried come first. The released trainer leaves the choice of turns out
    (`turns=1`) and divides the learning rate; evidence is the control alone, on simulated prompts.
    """

    card: ClassVar[Card] = Card(
        "dart", "Curated rollouts for GUI agents", "2509.23866", 2025,
        "42.13 % on OSWorld (7B), 14.6 points over its base; 0 to 46 % on 22 tasks that failed 32 times in a row",
        ("control", "filter", "objective"), "dapo",
        Evidence("pass rate of the hardest quarter at equal rollouts", "the same width everywhere and no rescue",
                 "higher", 0.02, seeds=5, check="studies.prompts.checks:dart"),
        counter=Counter("budget/arm/rescue"),
    )  # fmt: skip
    group: int = 8
    threshold: float = 0.6
    """Pass rate from which on a prompt gets fewer rollouts."""
    turns: float = 0.8
    """Share of a group's turns that is trained on: the most uncertain."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.1
    high: float = 1.0
    """Largest ratio of trainer to sampler that multiplies an action's credit."""

    def build(self) -> Parts:
        """Widths, horizons and rescues by prompt, mixed groups, uncertain turns, truncated weights, KL."""
        from rolltree.objective.correction import ImportanceWeight

        check_group("dart", self.group)
        chosen = self.turns < 1
        return Parts(
            "dart", Independent(self.group, want=frozenset({"entropy"} if chosen else ())), load_credit("grpo"),
            load_objective(
                "clipped", clip_low=self.clip_low, clip_high=self.clip_high, kl=self.kl,
                correction=ImportanceWeight("token", "truncate", high=self.high),
            ),
            averaging="token", filters=(Mixed(),), control=Dart(self.threshold),
            shapers=(UncertainTurns(self.turns),) if chosen else (),
        )  # fmt: skip
