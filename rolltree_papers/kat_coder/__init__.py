"""KAT-Coder's error-masked imitation of sessions with tools (arXiv 2510.18779)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.filter.calls import FailedCalls
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class KatCoder:
    """Sessions that came to a right end are imitated; turns whose call failed stay in the context without a loss.

    So the policy learns how it recovered, and not the call that failed. The paper masks collected sessions of many
    sources; here they are the policy's own successes (reconstructed), and of its pipeline only this stage. Its trees of
    sessions packed into one row are how every recipe trains here. `mask=False` is the imitation without it.
    """

    card: ClassVar[Card] = Card(
        "kat_coder", "Error-masked imitation", "2510.18779", 2025,
        "62.4 % on SWE-bench Verified (32B) by a pipeline of which this is one stage", ("filter", "objective"), "grpo",
        Evidence("first calls that fail", "the same imitation without the mask", "lower", 0.02, seeds=5,
                 check="rolltree_papers.kat_coder.study:kat_coder"),
        task="calculator?fail_rate=0.3", counter=Counter("rollout/masked"),
    )  # fmt: skip
    group: int = 8
    mask: bool = True
    """Whether failed turns are left out of the loss."""

    def build(self) -> Parts:
        """Independent rollouts, the outcome itself as credit, likelihood of what succeeded outside of failed turns."""
        check_group("kat_coder", self.group, 1)
        return Parts(
            "kat_coder", Independent(self.group), load_credit("raw", right=True), load_objective("reinforce"),
            averaging="sequence", shapers=(FailedCalls(),) if self.mask else (),
        )  # fmt: skip
