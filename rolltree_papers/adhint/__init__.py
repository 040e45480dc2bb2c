"""ADHint: adaptive hints with difficulty priors (arXiv 2512.13095)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.control.brief import brief
from rolltree.control.hints import beginning
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import load_credit, register
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.table import Bools, Table

# Hints as long as a prompt is hard, beside unhinted rollouts (ADHint).


@dataclass(frozen=True, slots=True)
class ADHint:
    """Half of a prompt's rollouts are unhinted; the others begin with a share w of a right answer,
    w = (most − least) · (failure rate of the first half) + least, plus noise (ADHint, arXiv 2512.13095, eq. 1).

    Prompts that the first half solved get no hint: their second half is unhinted too. What of the hints is trained on
    is the objective's (`hint_mask`), how the two arms are compared the credit's (`hinted`).
    """

    name: ClassVar[str] = "adhint"
    paper: ClassVar[str] = "2512.13095"
    needs: ClassVar[frozenset[str]] = frozenset({"solution", "one turn"})
    least: float = 0.1
    """Least share of a right answer that a hint shows."""
    most: float = 0.8
    """Largest share of a right answer that a hint shows."""
    spread: float = 0.05
    """Standard deviation of the noise on the share."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most <= 1 or self.spread < 0:
            raise ControlError(
                f"adhint: least={self.least}, most={self.most} and spread={self.spread} make no sense; give shares in "
                "order within [0, 1] and a spread of at least 0"
            )

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """An unhinted round, then a hinted one."""
        assert step.solution is not None  # `needs` was checked
        half = max(step.width // 2, 1)
        rest = max(step.width - half, 1)
        delivered = yield [Order(prompt, half) for prompt in step.take()]
        orders: list[Order] = []
        for d in delivered:
            prompt, missed = d.order.prompt, 1 - d.rate
            share = (self.most - self.least) * missed + self.least + float(step.rng.normal(0, self.spread))
            answer = step.solution(prompt.item)
            # All of the answer leaves nothing to do.
            text = beginning(answer, min(max(share, 0.0), 1.0))[: len(answer) - 1] if d.n and missed > 0 else ""
            why = f"{missed:.2f} missed: {len(text)} of {len(answer)} characters shown"
            if text:
                shown = brief(text, "hint", joins=True, trainable=True)
                orders.append(Order(prompt, rest, "hint", shown, why=why, last=True))
            else:
                orders.append(Order(prompt, rest, why="solved without a hint", last=True))
        yield orders


# Hinted and unhinted rollouts compared within their own arm, then weighed by how much the hint helped.


def hinted_leaves(table: Table) -> Bools:
    """Leaves with a hint node (role "hint") on their path."""
    hint = np.fromiter((n.role == "hint" for n in table.nodes), np.float64, len(table.nodes))
    return table.down(hint)[table.leaf] > 0


@register("hinted", paper="ADHint, arXiv:2512.13095", family="shaping")
@dataclass(frozen=True, slots=True)
class Hinted:
    """A = (r − arm mean)/(arm std + eps), × w for unhinted successes and hinted failures, × 1/w for hinted successes.

    w = 1 + D_n − D_h with D the failure rate of the unhinted and the hinted arm (ADHint; the form of w is
    reconstructed), at least `floor`. Successes count where the advantage is positive. A prompt with one arm gets that
    arm's group advantage. Hint actions themselves stay out of it unless they train; published masking of hint tokens
    under negative advantages is the objective's.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    correct: float = 0.5
    floor: float = 0.1
    """Least weight between the two arms."""
    reweigh: bool = True
    """Whether rewards of the arms are weighed by how much the hint helped."""
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, hinted = outcomes(table), hinted_leaves(table)
        arm = np.where(table.live, 2 * table.leaf_tree + hinted, -1)
        leaf = scaled(centred(reward, arm, "mean"), reward, arm, "std", ddof=self.ddof, eps=self.eps)
        if not self.reweigh:
            return Advantage(leaf=leaf)
        missed = np.full(2 * len(table.trees), np.nan)
        found = partition.mean((reward <= self.correct).astype(np.float64), arm)
        size = partition.count(arm)
        missed[: len(found)] = np.where(size > 0, found, np.nan)
        gap = np.nan_to_num(missed[0::2] - missed[1::2])
        weight = np.maximum(1 + gap, self.floor)[table.leaf_tree]
        factor = np.where(hinted & (leaf > 0), 1 / weight, np.where(hinted ^ (leaf > 0), weight, 1.0))
        return Advantage(leaf=leaf * factor)


@dataclass(frozen=True, slots=True)
class ADHintRecipe:
    """Hinted and unhinted rollouts in arms of their own, weighed by how much the hint helped; a hint that led to a bad
    rollout is not unlearned.

    The hint is the beginning of a right answer, longer where the unhinted half failed more, and trains: less the
    further its entropy is from what the policy wrote after it. The forms of both weights are (reconstructed). Judge it
    by unhinted accuracy. The evidence is a chain of digits of which only the whole is rewarded.
    """

    card: ClassVar[Card] = Card(
        "adhint", "Adaptive hints with difficulty priors", "2512.13095", 2025,
        "better pass@1 and avg@8 than earlier RL with hints, for text and images, in and out of domain",
        ("control", "credit", "objective"), "grpo",
        Evidence("unhinted success on hard chains", "half of the answer always shown", "higher", 0.02, seeds=5,
                 check="rolltree_papers.adhint.study:adhint"),
        counter=Counter("budget/arm/hint"),
    )  # fmt: skip
    group: int = 16
    least: float = 0.1
    """Smallest share of the answer that a hint shows."""
    most: float = 0.8
    """Largest share of the answer that a hint shows."""
    tau: float | None = 1.0
    """Scale of the entropy gap at which a hint token's credit fades; None = masking alone."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Two rounds of rollouts, arms compared within themselves, masked hints, clipped surrogate."""
        from rolltree.objective.forced import HintMask

        check_group("adhint", self.group, 4)
        return Parts(
            "adhint", Independent(self.group), load_credit("hinted"),
            load_objective(
                "clipped", clip_low=self.clip, clip_high=self.clip, correction=(HintMask(self.tau),)
            ),
            averaging="sequence", control=ADHint(self.least, self.most),
        )  # fmt: skip
