"""GDRO: distributionally robust groups, by weight and by width (arXiv 2601.19280)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.gdro import PromptGdro, Reading, RolloutGdro
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class PromptGdroRecipe:
    """GRPO whose advantages are weighted by an adversary over difficulty bins.

    As the paper has it no weight is below 1, so that all is learned faster too; its evidence divides those of a step by
    their mean.
    """

    card: ClassVar[Card] = Card(
        "prompt_gdro", "Prompt-GDRO", "2601.19280", 2026,
        "pass@8 +10.6 % relative over GRPO (Qwen3-1.7B/4B/8B base, DAPO 14.1k)", ("control", "credit"), "grpo",
        Evidence("pass rate of the worst bin, weights of mean 1 a step", "uniform weights", "higher", 0.005, seeds=5,
                 check="studies.prompts.checks:prompt_gdro"),
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    eta: float = 1.0
    """Temperature of the weights. The paper's 0.1 is for scores that are sums of losses; these are means in
    0..1."""
    reading: Reading = "paper"
    """Which reading of the method: the paper's, or the released code's."""
    debias: bool = True
    """Divide a bin's score by its share of the step, so that rare bins are not starved (at most tenfold)."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with prompt weights."""
        check_group("prompt_gdro", self.group)
        return Parts(
            "prompt_gdro", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=PromptGdro(eta=self.eta, reading=self.reading, debias=self.debias),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RolloutGdroRecipe:
    """GRPO whose bins are given widths by bandits under one rollout budget."""

    card: ClassVar[Card] = Card(
        "rollout_gdro", "Rollout-GDRO", "2601.19280", 2026,
        "pass@8 +10.1 % relative over GRPO (Qwen3-1.7B/4B/8B base, DAPO 14.1k)", ("control",), "grpo",
        Evidence("summed variance of group means", "uniform width", "lower", 0.0, seeds=5,
                 check="studies.prompts.checks:rollout_gdro"),
        counter=Counter("rollout/group_size_spread"),
    )  # fmt: skip
    group: int = 8
    least: int = 2
    """Smallest width of a bin."""
    most: int = 0
    """Largest width; 0 = twice the mean."""
    reading: Reading = "paper"
    """Which reading of the method: the paper's, or the released code's."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with widths per bin."""
        check_group("rollout_gdro", self.group)
        return Parts(
            "rollout_gdro", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=RolloutGdro(least=self.least, most=self.most, reading=self.reading),
        )  # fmt: skip
