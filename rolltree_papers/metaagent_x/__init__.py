"""MetaAgent-X: designers and executors trained together (arXiv 2605.14212)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.plans import PlanExecute
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class MetaAgentX:
    """Several designs of a prompt, several executions of each: a design earns the mean outcome of its executions.

    The paper's design is a program that calls agents. Here it is how the rollout begins (`himac`'s plans), by the same
    policy, so both roles learn at once; alternating two policies every 30 steps and the rewards of format are left out.
    With `within="question"` an execution is compared with all of the prompt's, and its advantage contains the
    design's quality; "design" takes that out, "auto" (as published) does from three executions on.
    """

    card: ClassVar[Card] = Card(
        "metaagent_x", "MetaAgent-X", "2605.14212", 2026,
        "up to 21.7 % above automatic multi-agent systems whose executors stay as they are", ("generate", "credit"),
        "grpo", Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6, settings=("grpo:group=16",)),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    designs: int = 4
    """Designs of each prompt."""
    executions: int = 4
    """Executions of each design."""
    turns: int = 3
    """Turns of a design, where an environment answers."""
    stop: str = ","
    """What ends a design elsewhere."""
    within: Literal["auto", "question", "design"] = "auto"
    """What an execution is compared with: all of the question, those of its design, or auto (as published)."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Designs and their executions, credit by role, clipped surrogate; a design is one sample."""
        check_group("metaagent_x", self.designs)
        return Parts(
            "metaagent_x", PlanExecute(self.designs, self.executions, self.turns, (self.stop,)),
            load_credit("designer_executor", group=self.within),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            multiplicity="once",
        )  # fmt: skip
