"""e1: adaptive effort control (arXiv 2510.27042)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import live_leaves
from rolltree.filter.lengths import written
from rolltree.filter.shaping import RewardError
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.task.protocol import Item
from rolltree.tree import Tree

# An effort asked for in the prompt, relative to how long the policy's answers to it are now (e1).


@dataclass(frozen=True, slots=True)
class EffortLevels:
    """Each prompt is asked at an effort r drawn from [least, most], or at its own; all its rollouts share it.

    The root carries `effort`, which `rolltree_papers.e1.WithinEffort` reads: right answers count if they are no
    longer than r times the group's mean. Asked at an effort a prompt is an arm of its own. At r = 1 about half of a
    group is too long; whether r may exceed 1 is not published.
    """

    name: ClassVar[str] = "e1"
    paper: ClassVar[str] = "2510.27042"
    needs: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset({"root:effort"})
    least: float = 0.2
    """Least effort that is asked for."""
    most: float = 1.0
    """Largest effort that is asked for."""
    template: str = "effort {effort:.1f}\n"
    """What stands in front of the prompt."""
    column: str = ""
    """Where items ask for an effort themselves: the column that holds it, as r. Their prompts stay as they are."""

    def __post_init__(self) -> None:
        if not 0.1 <= self.least <= self.most:
            raise ControlError(
                f"e1: efforts from {self.least} to {self.most} make no sense; give 0.1 <= least <= most (an effort is "
                "asked with one digit after the point)"
            )
        if self.template and "{effort" not in self.template:
            raise ControlError(
                f"e1: template={self.template!r} does not say the effort; write {{effort}} in it, or leave it empty"
            )

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        orders: list[Order] = []
        for prompt in step.take():
            asked, effort = self._own(prompt.item) if self.column else self._drawn(prompt.item, step)
            orders.append(
                Order(
                    replace(prompt, item=asked), arm="effort", marks={"effort": effort}, why=f"effort {effort}",
                    last=True,
                )
            )  # fmt: skip
        yield orders

    def _drawn(self, item: Item, step: Step) -> tuple[Item, float]:
        """What is asked and what is said agree to the digit that is said."""
        effort = round(float(step.rng.uniform(self.least, self.most)), 1)
        return replace(item, prompt=self.template.format(effort=effort) + item.prompt), effort

    def _own(self, item: Item) -> tuple[Item, float]:
        effort = item.meta.get(self.column)
        if isinstance(effort, bool) or not isinstance(effort, int | float) or not 0 < effort <= 1:
            raise ControlError(
                f"e1: item {item.id!r} has {effort!r} in column {self.column!r}; an effort is a number above 0, up to 1"
                " (leave column out to have one drawn)"
            )
        return item, float(effort)


# A right answer counts if it is no longer than the effort asked for allows.


@dataclass(frozen=True, slots=True)
class WithinEffort:
    """An outcome counts only if the leaf is no longer than r × the group's mean length, with r the root's score
    `effort` (e1, arXiv 2510.27042).

    All leaves of a tree must be asked at one r. The mean is measured anew each time: relative pressure, in which
    everybody can shrink together while staying right. Cut-off leaves pull the mean down. What the verifier said stays
    in `outcome`. Idempotent.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"root:effort"})
    over: Literal["all", "correct"] = "all"
    """Whose mean length counts: all rollouts of the group, or the right ones."""
    floor: float = 1.0
    """Least mean length, in tokens: keeps it from shrinking to nothing."""
    correct: float = 0.5
    """A larger outcome is right."""

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf; `limit` is not used."""
        effort = tree.root.scores.get("effort")
        if effort is None:
            raise RewardError(
                f"tree {tree.id!r} says no effort; take a control that asks for one (`--control e1`), which writes it "
                "on the root"
            )
        leaves = live_leaves(tree)
        lengths = [written(tree, leaf) for leaf in leaves]
        said = [leaf.scores.setdefault("outcome", leaf.scores["reward"]) for leaf in leaves]
        among = [
            length for length, outcome in zip(lengths, said, strict=True)
            if self.over == "all" or outcome > self.correct
        ]  # fmt: skip
        mean = max(sum(among) / len(among) if among else 0.0, self.floor)
        for leaf, length, outcome in zip(leaves, lengths, said, strict=True):
            leaf.scores["reward"] = outcome if length <= effort * mean else 0.0


@dataclass(frozen=True, slots=True)
class E1:
    """GRPO in which a right answer counts only if it is no longer than the asked effort times the group's mean length.

    The mean is re-measured each step, so pressure never needs retuning; `floor` keeps it from shrinking to nothing. The
    range of efforts is reconstructed. Its evidence fixes r = 1 and does not say it, where the policy chooses its own
    effort: what is measured is the gate, not the dial. Asked for an effort that the policy obeys already, all of a
    group are as long, and hardly any is shorter than a part of their mean.
    """

    card: ClassVar[Card] = Card(
        "e1", "Adaptive effort control", "2510.27042", 2025,
        "two to three times shorter reasoning at equal or better accuracy (1.5B to 32B)", ("control", "filter"), "grpo",
        Evidence("eval/length", "grpo", "lower", 5.0, "regime:tails", seeds=6,
                 settings=("e1:least=1", "e1:most=1", "e1:template=")),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    least: float = 0.2
    """Smallest effort that is asked for."""
    most: float = 1.0
    """Largest effort that is asked for."""
    template: str = "effort {effort:.1f}\n"
    """What stands in front of the prompt; "" = the effort is not said."""
    column: str = ""
    """Where items ask for an effort themselves: the column that holds it, a number above 0, up to 1."""
    floor: float = 1.0
    """Shortest mean length that the effort is multiplied with."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Prompts that ask for an effort, and the gate on length."""
        check_group("e1", self.group)
        return Parts(
            "e1", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=EffortLevels(self.least, self.most, self.template, self.column),
            shapers=(WithinEffort(floor=self.floor),),
        )  # fmt: skip
