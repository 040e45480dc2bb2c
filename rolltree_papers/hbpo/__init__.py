"""HBPO: hierarchical budget policy optimisation (arXiv 2507.15844)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.control.allocate import proportional
from rolltree.control.brief import brief
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import leaf_scores, outcomes
from rolltree.credit.registry import load_credit, register
from rolltree.credit.selection import path_length
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.table import Floats, Table

# Arms with announced token budgets within one group (HBPO).


@dataclass(frozen=True, slots=True)
class Budgets:
    """Each prompt's rollouts are split over budget arms; a sentence at the beginning of the answer announces each.

    Leaves carry their `budget`, which the credit `budget` reads. The sentence stands in the tree as a hint that does
    not train (released code leaves its tokens in the loss).
    """

    name: ClassVar[str] = "hbpo"
    paper: ClassVar[str] = "2507.15844"
    needs: ClassVar[frozenset[str]] = frozenset({"one turn"})
    writes: ClassVar[frozenset[str]] = frozenset({"leaf:budget"})
    budgets: tuple[int, ...] = (512, 1024, 2048, 2560)
    """Lengths that are announced, in tokens; the rollouts of a prompt are split over them."""
    template: str = "I will answer the question within {budget} tokens. "
    """The sentence that announces one; `{arm}` in it is the number of the budget, from 0, for a policy that was
    trained to obey a word for each."""

    def __post_init__(self) -> None:
        if len(self.budgets) < 2 or min(self.budgets) < 1 or len(set(self.budgets)) < len(self.budgets):
            raise ControlError(
                f"hbpo: budgets={self.budgets} are no arms; give two or more different numbers of tokens"
            )
        if "{budget}" not in self.template and "{arm}" not in self.template:
            raise ControlError(
                f"hbpo: template={self.template!r} does not announce anything; write {{budget}} or {{arm}} in it"
            )

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """All arms at once."""
        widths = proportional([1.0] * len(self.budgets), max(step.width, len(self.budgets)))
        yield [
            Order(
                prompt, width, f"budget {budget}", brief(self.template.format(budget=budget, arm=arm), "budget"),
                leaf_marks={"budget": float(budget)}, why=f"announces {budget} tokens", last=True,
            )
            for prompt in step.take() for arm, (budget, width) in enumerate(zip(self.budgets, widths, strict=True))
        ]  # fmt: skip


# Budget arms: a reward that peaks at the announced length, compared within and across arms.


@register("budget", paper="HBPO, hierarchical budget policy optimisation (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class AnnouncedLength:
    """A = (R − mean)/std over the prompt + (mean R of the arm − f2(b)) (HBPO).

    For a correct leaf of length l ≤ limit in the arm with budget b: R = min(f1, f2), f1 = g cos(π l / 2 limit) −
    |l − b| / limit, f2 = g cos(π b / 2 limit); without a budget g cos(π l / 2 limit). Otherwise 0. A leaf's arm is
    its score `budget` (0 or absent: no arm). The arm term is not centred: it is at most 0, a penalty on arms far from
    their ceiling. Released code adds it twice (`arm=2`); arm = 0 leaves the group term alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    limit: int = 4096
    """Length beyond which a right answer earns nothing."""
    gain: float = 4.0
    """Height of the cosine that falls with the length."""
    arm: float = 1.0
    """Weight of the term that punishes budgets far from the best one; 0 leaves the group term alone."""
    correct: float = 0.5
    ddof: Ddof = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise CreditError(f"budget: limit must be at least 1 action, got {self.limit}")

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        budget = leaf_scores(table, "budget", missing=0.0)
        has_arm = budget > 0
        right = outcomes(table) > self.correct
        reward = np.where(right, self.rewards(path_length(table), budget), 0.0)
        group = partition.leaf_groups(table, "tree")
        across = scaled(centred(reward, group, "mean"), reward, group, "std", ddof=self.ddof, eps=self.eps)
        keys = zip(table.leaf_tree.tolist(), budget.tolist(), table.live & has_arm, strict=True)
        arm = partition.ids((t, b) if use else None for t, b, use in keys)
        mean = partition.spread(partition.mean(reward, arm), arm) if (arm >= 0).any() else np.zeros(len(reward))
        within = np.where(arm >= 0, mean - self._ceiling(budget), 0.0)
        return Advantage(leaf=across + self.arm * within)

    def rewards(self, length: Floats, budget: Floats) -> Floats:
        """The reward of correct leaves of these lengths and budgets."""
        bare = self._ceiling(length)
        capped = np.minimum(bare - np.abs(length - budget) / self.limit, self._ceiling(budget))
        return np.where(length <= self.limit, np.where(budget > 0, capped, bare), 0.0)

    def _ceiling(self, length: Floats) -> Floats:
        return self.gain * np.cos(np.pi * length / (2 * self.limit))


@dataclass(frozen=True, slots=True)
class Hbpo:
    """Arms that announce 1/8, 1/4, 1/2 and 5/8 of the limit, rewarded for keeping to it, compared within and across.

    Evaluation announces nothing. `arm=2` is the released code, which adds the arm's term twice.
    """

    card: ClassVar[Card] = Card(
        "hbpo", "Hierarchical budgets", "2507.15844", 2025,
        "60.6 % fewer tokens at 3.14 points more accuracy on four sets (DeepScaleR-1.5B)",
        ("generate", "control", "credit"), "grpo",
        Evidence("eval/length", "grpo", "lower", 10.0, "regime:tails", seeds=6,
                 settings=("hbpo:limit=64", "hbpo:template={arm}:")),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    group: int = 16
    limit: int = 48
    """Length limit in tokens that the budgets and the reward are fractions of (4,096 in the paper)."""
    template: str = "I will answer the question within {budget} tokens. "
    """What announces the budget, before the answer; `{arm}` is its number, from 0."""
    arm: float = 1.0
    """Weight of the comparison within an arm; 2 = as in the released code."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Budget arms and budget credit."""
        check_group("hbpo", self.group, 8)
        budgets = tuple(max(1, round(self.limit * share)) for share in (1 / 8, 1 / 4, 1 / 2, 5 / 8))
        return Parts(
            "hbpo", Independent(self.group), load_credit("budget", limit=self.limit, arm=self.arm),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Budgets(budgets, self.template),
        )  # fmt: skip
