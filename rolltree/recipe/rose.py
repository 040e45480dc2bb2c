"""ROSE: reinforced efficient reasoning via semantically diverse exploration (arXiv 2601.05053)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.methods.rose import MeaningfulDoubt
from rolltree.generate.signals import Signal
from rolltree.generate.stems import BySignal, OneAtATime
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Rose:
    """Rollouts one after another; each forks the place of all earlier ones where meanings diverge most, or restarts.

    The score is entropy × semantic divergence of the top 20 alternatives. `form="literal"` has the published sign, by
    which certain tokens score highest wherever cosines are positive; `form="entropy"` leaves divergence out. Credit is
    V(node) − V(parent) without a deviation. Values belong to prefixes here; released code keys them by position and so
    merges different prefixes of one length. `calibrate` is the exponent of the calibration by length, which the paper
    varies from 0.5 to 3 and its released example leaves off; the paper's KL weight of 1e-3 is `kl`, off by default.
    """

    card: ClassVar[Card] = Card(
        "rose", "Semantically diverse exploration", "2601.05053", 2026,
        "pass@8 averages from 49.64 (GRPO) to 55.75 (Qwen3-8B) and from 28.35 to 31.67 (Llama-3.2-3B)",
        ("generate", "control", "credit"), "dr_grpo",
        Evidence("pass@1", "dr_grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    leaves: int = 8
    restart: float = 0.5
    """ε: chance of a fresh rollout from the root instead of a fork."""
    form: Literal["kept", "literal", "entropy"] = "kept"
    """The score of a place: as kept here, with the published sign (literal), or without divergence (entropy)."""
    top: int = 20
    """Likeliest alternatives that are compared."""
    consume: bool = True
    """Whether a place forks only once; released code reuses it until a better one appears."""
    backup: Literal["leaf_mean", "child_mean"] = "leaf_mean"
    values: Literal["prefix", "position"] = "prefix"
    """What a value belongs to; "position" merges different prefixes of one length, as released."""
    calibrate: float | None = None
    """Exponent of the calibration by length; none when left out."""
    clip: float = 0.2
    kl: float = 0.0
    sampling_rounds: int = 1

    def build(self) -> Parts:
        """Sequential forks by the score, node-delta credit, Dr. GRPO's fixed averaging, mixed groups only."""
        check_group("rose", self.leaves)
        if self.form not in ("kept", "literal", "entropy"):
            raise RecipeError(f"rose: form={self.form!r} is none of kept, literal, entropy")
        scorer = (
            BySignal(Signal("entropy:top", self.top)) if self.form == "entropy"
            else MeaningfulDoubt(self.top, literal=self.form == "literal")
        )  # fmt: skip
        credit = load_credit("node_delta", backup=self.backup, by=self.values)
        if self.calibrate is not None:
            credit = load_credit("length_calibrated", base=credit, alpha=self.calibrate)
        return Parts(
            "rose", OneAtATime(self.leaves, scorer, self.restart, self.consume),
            credit,
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="fixed",
            filters=(Mixed(),), rounds=self.sampling_rounds,
        )  # fmt: skip
