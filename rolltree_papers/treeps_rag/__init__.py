"""TreePS-RAG: tree-based process supervision for agentic retrieval (arXiv 2601.06922)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.forkall import ForkAll, like_look_ups
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class TreePsRag:
    """Search agents credited step by step with the outcomes below each step, no process labels needed.

    Every frontier path searches several ways and similar siblings are pruned. No code was released: the likeness of
    queries (overlap of their words), the credit's form and counting shared steps once are (reconstructed). The mean
    over children replaces the published mean over leaves as default, because pruning leaves uneven numbers of leaves
    below equally likely steps; `backup="leaf_mean"` is the published one.
    """

    card: ClassVar[Card] = Card(
        "treeps_rag", "Tree-based process supervision for agentic RAG", "2601.06922", 2026,
        "better than outcome-only RL and process-supervised baselines on seven QA sets at comparable rollout cost",
        ("generate", "control", "credit"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:noisy", seeds=6, settings=("treeps_rag:leaves=8",)),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    leaves: int = 16
    ways: int = 4
    width: int = 4
    """Paths that live at once."""
    backup: Literal["child_mean", "leaf_mean"] = "child_mean"
    by_root_of_leaves: bool = False
    """Divide a step's credit by √(leaves below it)."""
    random_prune: bool = False
    """Prune by chance instead of likeness: the control."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Fork all and prune the like, global plus local credit, each step counted once."""
        check_group("treeps_rag", self.leaves)
        forks = ForkAll(
            like_look_ups, self.leaves, self.ways, self.width, by="chance" if self.random_prune else "likeness"
        )
        return Parts(
            "treeps_rag", forks,
            load_credit("global_plus_local", backup=self.backup, by_root_of_leaves=self.by_root_of_leaves),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
            multiplicity="once",
        )  # fmt: skip
