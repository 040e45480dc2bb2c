"""LATR: lookahead tree-based rollouts (arXiv 2510.24302)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.backfill import Backfill
from rolltree.generate.methods.latr import Lookahead
from rolltree.generate.methods.latr_lookahead import Look
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.varying import Knob


@dataclass(frozen=True, slots=True)
class Latr:
    """Groups whose members differ: rows fork where two tokens are likely, and forks that re-converge are dropped.

    The update is GRPO's (`filtered` adds DAPO's mixed groups). Thresholds are those of the Countdown scripts; the
    mathematics scripts swap them (0.15, 0.25) and test by suffixes and ROUGE-L instead of edit distance. `ages` are in
    tokens; left empty they are the paper's 20, 30 and 50, or 10, 15 and 25 % of the task's limit where that is less,
    and ages that can never drop a row are refused. Released code judges no row whose parent goes on with a digit or a
    sign (`spare="+-*/\\<>=()[]{}_^&%$0123456789"`); on countdown and arithmetic every token is one, so nothing would
    ever be dropped, and the default spares none. Rows are looked at every `chunk` tokens. The published group is
    filled up with copies (`fill="copy"`); here with fresh rollouts. `share` and `full` fall over
    training: `share` by the Countdown script's stairs, whose last, 0 at 200, is independent sampling, `full` by 0.05
    over its 500 steps. Its KL weight of 0.01 is `kl`, off by default. `random_prune` > 0 drops rows by chance
    instead of similarity: the control at an equal rate.
    """

    card: ClassVar[Card] = Card(
        "latr", "Lookahead tree-based rollouts", "2510.24302", 2025,
        "Countdown from 65.9 to 70.9 (GRPO) and 70.7 to 74.7 (DAPO) with Qwen2.5-3B; 6.9 unique answers of 8, not 6.3",
        ("generate", "control"), "grpo", Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("rollout/dropped/pruned"),
    )  # fmt: skip
    leaves: int = 8
    share: Knob = "1, 0.75 at 10, 0.5 at 20, 0.25 at 80, 0 at 200"
    """η: share of the group that comes from the tree; the rest is independent."""
    absolute: float = 0.25
    """Probability that a token other than the likeliest must exceed to make a fork."""
    relative: float = 0.15
    """Largest distance of its probability from the likeliest token's."""
    ages: tuple[int, ...] = ()
    """Tokens after a fork at which rows are compared; empty = the paper's, or shares of a short limit."""
    alike: float = 0.6
    """Likeness from which a row counts as having converged again and is dropped."""
    random_prune: float = 0.0
    """Chance of dropping a row instead of comparing; 0 = compare."""
    spare: str = ""
    """Characters at which a row is never judged: it keeps its place where its parent goes on with one of them."""
    full: Knob = "0.98->0.93 over 500"
    """Share of the places that must be taken before sampling begins."""
    most: int = 512
    """Tokens after which it hands over in any case."""
    chunk: int = 16
    """Greedy tokens written at once; it hands over at the end of one."""
    filtered: bool = False
    """Whether groups all right or all wrong are left out, as in DAPO."""
    fill: Backfill = "restart"
    """Where missing leaves come from; "copy" as released."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0

    @at_start
    def build(self) -> Parts:
        """A lookahead tree, then GRPO as it is."""
        check_group("latr", self.leaves)
        look = Look(
            absolute=self.absolute, relative=self.relative, ages=tuple(self.ages), alike=self.alike,
            by="chance" if self.random_prune else "similarity", chance=self.random_prune,
            spare=self.spare,
        )  # fmt: skip
        return Parts(
            "latr",
            Lookahead(self.leaves, float(self.share), look, float(self.full), self.most, self.chunk, fill=self.fill),
            load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high, kl=self.kl),
            averaging="sequence", filters=(Mixed(),) if self.filtered else (),
        )  # fmt: skip
