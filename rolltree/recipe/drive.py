"""DRIVE: a broad stage, then the hardest prompts with many rollouts (arXiv 2511.06307)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.drive import Drive
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class DriveRecipe:
    """GRPO over a broad pool, then over its hardest prompts alone, ever fewer, with 64 rollouts each.

    Where it differs: the pool is the first prompts of the stream, where the paper's is of even difficulty (give a task
    that is, as `mixed:NAME`); rollouts are as long in both stages, where the paper's grow longer; the paper's first
    step, fine-tuning on distilled answers, is another program's. Few prompts with many rollouts are soon known by
    heart: judge it on held-out items. Its evidence is on simulated prompts that do not help one another: there the
    hardest are paid for with all others.
    """

    card: ClassVar[Card] = Card(
        "drive", "Data curation in two stages", "2511.06307", 2025,
        "weekly Codeforces contests from pass@1 0.115 to 0.182 (+58 %) over supervised fine-tuning (Qwen2.5-32B)",
        ("control",), "grpo",
        Evidence("pass rate of all prompts after training on as many rollouts", "the broad stage alone", "higher", 0.02,
                 seeds=5, check="studies.prompts.checks:drive"),
        counter=Counter("budget/arm/measured"),
    )  # fmt: skip
    group: int = 8
    pool: int = 256
    """Prompts of the broad stage."""
    sets: tuple[int, ...] = (72, 50, 25)
    """Hardest prompts that each later stage keeps."""
    broad: int = 50
    """Steps of the broad stage."""
    each: int = 20
    """Steps of every later stage."""
    hard: int = 64
    """Rollouts of a prompt in the later stages."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO whose prompts and widths come in stages."""
        check_group("drive", self.group)
        check_group("drive", self.hard)
        return Parts(
            "drive", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Drive(self.pool, self.sets, self.broad, self.each, self.hard),
        )  # fmt: skip
