"""HiPER: hierarchical advantages over segments between subgoals (arXiv 2602.16165)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.generate.methods.hiper import SubgoalTurns
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError


@dataclass(frozen=True, slots=True)
class Hiper:
    """Within a segment advantages run on undiscounted; at its end the critic's value of the next one takes over.

    The policy writes when it switches and to which subgoal (`spoken:grid`), and switch, subgoal and action have
    advantages of their own; V_low is read where the action's span begins, V_high and V_term where the turn does. Each
    tree says how many of its turns switched and how many lacked a switch or an action; torn turns learn whole
    (`whole=False` leaves them out of the loss as the paper does; then they took over, and nothing was right any more).
    The evidence starts from a policy
    that has imitated such play (`spoken`). For one that does not speak so, `subgoals="paid"` begins a segment where the
    environment pays for a subgoal, and the action's advantage is what is left of the method. The baseline is flat PPO
    with the same critic at λ = 1, the comparison in which its theorem promises less variance, and no bias only while
    the critic is right. One head stands for three; penalties for keeping a subgoal, and the penalty of 0.1 for an
    invalid action, are left out.
    """

    card: ClassVar[Card] = Card(
        "hiper", "Hierarchical advantage estimation", "2602.16165", 2026,
        "97.4 on ALFWorld and 83.3 on WebShop (Qwen2.5-7B), 6.6 and 8.3 above the best before", ("credit", "generate"),
        "ppo",
        Evidence("pass@1", "ppo", least=0.04, task="regime:spoken", seeds=6, settings=("ppo:decay=1.0",)),
        counter=Counter("reward/part/switches"),
    )  # fmt: skip
    group: int = 8
    subgoals: Literal["written", "paid"] = "written"
    """Who says where a segment begins: the policy's turns, or the environment's step rewards."""
    whole: bool = True
    """Whether tokens in no span learn too, with the span whose place they take; reconstructed."""
    gamma: float = 1.0
    turn_decay: float = 1.0
    """λ within a segment."""
    segment_decay: float = 0.95
    """λ from a segment to the next one."""
    whiten: bool = True
    """Each kind of advantage over the step."""
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the starting policy; 0.01 in the paper."""

    def build(self) -> Parts:
        """Independent episodes in segments, hierarchical advantages under the trainer's critic, clipped surrogate."""
        if self.group < 1:
            raise RecipeError(f"hiper: group={self.group} samples nothing; give at least 1")
        credit = load_credit(
            "hiper", gamma=self.gamma, turn_decay=self.turn_decay, segment_decay=self.segment_decay, whiten=self.whiten
        )
        return Parts(
            "hiper", SubgoalTurns(Independent(self.group), self.subgoals, whole=self.whole), credit,
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
        )  # fmt: skip
