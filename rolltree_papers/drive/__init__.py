"""DRIVE: a broad stage, then the hardest prompts with many rollouts (arXiv 2511.06307)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.pool import Pool, check_pool, measured
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import storable

# Broad first, then few of the hardest prompts with many rollouts, the set shrinking as it is solved (DRIVE).


@storable
@dataclass(slots=True)
class DriveState:
    """All prompts, the stage, and which of them are still asked."""

    pool: Pool
    stage: int = 0
    hard: list[str] = field(default_factory=list[str])
    """Ids; empty in the first stage."""


@dataclass(frozen=True, slots=True)
class Drive:
    """`broad` steps over the whole pool, then `each` steps over each of the `sets` of hardest prompts.

    Where a set begins, all that were left are measured anew and those with the lowest pass rate stay: a rate of
    before would be another policy's. How long stages are is reconstructed; the paper also lengthens its token limit.
    """

    name: ClassVar[str] = "drive"
    paper: ClassVar[str] = "2511.06307"
    needs: ClassVar[frozenset[str]] = frozenset()
    pool: int = 256
    """Prompts of the first stage, some 9,000 in the paper."""
    sets: tuple[int, ...] = (72, 50, 25)
    """Hardest prompts that each later stage keeps."""
    broad: int = 50
    """Steps of the first stage."""
    each: int = 20
    """Steps of every later stage; the last one has no end."""
    hard: int = 0
    """Rollouts of a prompt in the later stages, 64 in the paper; 0 = eight times the strategy's width."""
    probes: int = 0
    """Rollouts that measure a prompt; 0 = the strategy's width."""

    def __post_init__(self) -> None:
        check_pool(self.name, self.pool, 0)
        sizes = (self.pool, *self.sets)
        if not self.sets or any(a < b for a, b in pairwise(sizes)) or min(sizes) < 1:
            raise ControlError(f"drive: sets={self.sets} must shrink from pool={self.pool} and keep 1 prompt at least")
        if self.broad < 0 or self.each < 1:
            raise ControlError(f"drive: broad={self.broad} and each={self.each} are numbers of steps; give 0 and 1 up")

    def start(self) -> DriveState:
        """The first stage."""
        return DriveState(Pool(self.pool))

    def stage(self, number: int) -> int:
        """The stage of a step, from 0; each set is one."""
        later = number - self.broad - 1
        return 0 if later < 0 else min(1 + later // self.each, len(self.sets))

    def plan(self, step: Step, state: DriveState) -> Plan:
        """The hardest of those left are found where a stage begins; then the round that trains."""
        items, stage = state.pool.items(step.supply), self.stage(step.number)
        # Where none of the set is left (the data changed), all are asked again.
        left = [item for item in items if item.id in state.hard] or items
        if stage > state.stage:
            known = yield from measured(step, left, self.probes, f"stage {stage}: which are hard")
            by_rate = sorted(known, key=lambda d: d.rate)[: self.sets[stage - 1]]
            if by_rate:  # without an outcome nobody is known to be hard, and the stage waits
                state.stage, state.hard = stage, [d.order.prompt.uid for d in by_rate]
                left = [item for item in left if item.id in state.hard]
        chosen = [left[i] for i in step.rng.permutation(len(left))[: step.prompts]]
        width = (self.hard or 8 * step.width) if stage else None
        yield [Order(p, width, why=f"stage {stage}", last=True) for p in step.prompts_of(chosen)]


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
                 seeds=5, check="rolltree_papers.drive.study:drive"),
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
