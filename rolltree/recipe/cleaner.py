"""CLEANER: self-purified trajectories (arXiv 2601.15141)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.methods.cleaner import A_CALL, Repairing
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Failed tool calls are replaced by the policy's own corrections before the trajectory is trained on.

    Repaired calls were sampled with the error in sight and are trained without it, at ratio 1: off-policy, on purpose,
    and without importance correction (the `shift` of each splice is on record). How to recover from an error is not
    taught, so a baseline must get as many tool calls, and evaluation without repairs measures another thing: held-out
    items are answered both ways, the paper's with repairs as `repaired/eval/pass@1`. The advice after two failures in a
    row is left out.
    """

    card: ClassVar[Card] = Card(
        "cleaner", "Self-purified trajectories", "2601.15141", 2026,
        "AIME 24/25 +6, GPQA +3, LiveCodeBench +5 points; the baseline's quality in a third of the steps",
        ("generate", "filter"), "dapo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:noisy", seeds=6),
        counter=Counter("rollout/births/splice"),
    )  # fmt: skip
    group: int = 8
    retries: int = 3
    """How often a failed call is tried again."""
    alike: float = 0.5
    """Least likeness (matching characters, 0 to 1) of two calls for the old reasoning to stay."""
    chance: float = 1.0
    """Share of rollouts that are repaired at all (1 for the paper's 4B model, 0.7 for its 7B)."""
    call: str = A_CALL
    """Regular expression that finds the call in a turn; what stands before it is reasoning."""
    errors: str = ""
    """Regular expression of the errors that are repaired; all failed calls unless given."""
    rewind: bool = False
    """Make the new call in the state before the failed one; else in the state that the failure left, which
    matters for tools that fail by themselves: a deterministic one would fail the same way again."""
    evaluate_repaired: bool = True
    """Answer held-out items with repairs too."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual: float = 10.0

    def build(self) -> Parts:
        """Repaired rollouts, group credit, asymmetric dual clip against the proximal policy."""
        check_group("cleaner", self.group)
        repairing = Repairing(
            self.group, self.retries, self.alike, self.chance, self.call, self.errors, self.rewind
        )  # fmt: skip
        return Parts(
            "cleaner", repairing, load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high, dual=self.dual),
            averaging="token",
            evaluations={"repaired": replace(repairing, chance=1.0)} if self.evaluate_repaired else {},
        )  # fmt: skip
