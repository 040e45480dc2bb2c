"""Rewards that depend on the arms of a group: what tools were worth on this prompt, and who used them.

Both write the reward that credit sees; what the verifier said stays in `outcome`. Both are for groups whose leaves
carry `tool_mode` (`rolltree.control.arms`), and write `called`: 1 where a rollout called a tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.control.arms import FORBIDDEN, FORCED, FREE, MODE, THOUGHT
from rolltree.errors import RolltreeError
from rolltree.filter.groups import live_leaves
from rolltree.tree import Node, Tree

TOOLS = 2
"""The mode of a tagged answer that may call tools; those below have none."""


def calls(tree: Tree, leaf: Node) -> int:
    """Environment answers of a rollout that did not end it."""
    return sum(n.role == "env" and not (n is leaf and n.status == "done" and n.finish == "stop")
               for n in tree.path(leaf))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Adaptive:
    """A free rollout that called a tool earns its outcome times 1 − p^alpha, p the success of those without tools.

    So a tool is worth nothing on a question that is answered without one. A wrong answer earns nothing whatever it did.
    The part `format`, where the task has one, multiplies as well (A2FM, arXiv 2510.12838; the product, and that p is
    that of this step's forced arm, are reconstructed).

    With `tagged` the mode is what a free rollout said it was (`rolltree.task.tagged`): whatever does not answer at once
    earns 1 − p^alpha of its outcome, thought without tools too, and a rollout earns nothing that says no mode, or calls
    a tool in one that has none.
    """

    alpha: float = 2.0
    tagged: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """An arm for every leaf, and what a tagged answer says it is."""
        return frozenset({f"leaf:{MODE}", "part:mode"} if self.tagged else {f"leaf:{MODE}"})

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf; `limit` is not used."""
        arms = _arms(tree)
        alone = _success(arms[FORBIDDEN])
        for mode, leaves in arms.items():
            for leaf in leaves:
                slow, form = self._read(leaf, mode)
                worth = 1 - alone**self.alpha if slow and alone is not None else 1.0
                leaf.scores["reward"] = leaf.scores["outcome"] * worth * form * leaf.scores.get("format", 1.0)

    def _read(self, leaf: Node, mode: float) -> tuple[bool, float]:
        """Whether a rollout chose not to answer at once, and whether it is of the form that it chose."""
        called = leaf.scores["called"] > 0
        if not self.tagged or mode != FREE:
            return mode == FREE and called, 1.0
        if "mode" not in leaf.scores:
            raise RolltreeError(
                f"node {leaf.id} says no mode that could be read; take a task tagged:NAME, or give the recipe tags=()"
            )
        said = leaf.scores["mode"]
        return said > 0, float(said >= 0 and not (called and said < TOOLS))


@dataclass(frozen=True, slots=True)
class Necessity:
    """Correctness, obedience in the forced arms, and in the free one agreement with what tools are worth here.

    Tools help where those that had to use them succeed more often than those that could not, by more than `margin`;
    they hurt where it is less. Agreement is 1 for using what helps or leaving what hurts; −1 for a wrong answer without
    the help, or with the harm; 0 for a right one. Where they are neutral it is 1/2 for a right answer without one.
    `consistency` pays the share of free rollouts that chose as this one did. The paper orders its coefficients and does
    not print them: all numbers are reconstructed (arXiv 2510.01681).
    """

    needs: ClassVar[frozenset[str]] = frozenset({f"leaf:{MODE}"})
    obey: float = 0.2
    align: float = 0.5
    consistency: float = 0.1
    margin: float = 0.25
    """Smallest difference of success rates that is no chance: 4 rollouts against 4 are few."""

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise RolltreeError(f"a margin={self.margin} between success rates makes no sense; give 0 to below 1")

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf; `limit` is not used."""
        arms = _arms(tree)
        with_tools, without = _success(arms[FORCED]), _success(arms[FORBIDDEN])
        gap = 0.0 if with_tools is None or without is None else with_tools - without
        label = 0 if abs(gap) <= self.margin else 1 if gap > 0 else -1
        tree.root.scores["tools_help"] = float(label)
        called = [leaf.scores["called"] > 0 for leaf in arms[FREE]]
        for mode, leaves in arms.items():
            for leaf in leaves:
                used, right = leaf.scores["called"] > 0, leaf.scores["outcome"] > 0
                if mode == FREE:
                    alike = sum(c == used for c in called) / len(called)
                    more = self.align * _agreement(label, used=used, right=right) + self.consistency * alike
                else:
                    more = self.obey * float(used == (mode == FORCED))
                leaf.scores["reward"] = leaf.scores["outcome"] + more


def _agreement(label: int, *, used: bool, right: bool) -> float:
    if label == 0:
        return 0.5 if right and not used else 0.0
    if used == (label > 0):
        return 1.0
    return 0.0 if right else -1.0


def _arms(tree: Tree) -> dict[float, list[Node]]:
    """Live leaves by mode, each with its outcome kept and its calls said."""
    arms: dict[float, list[Node]] = {FREE: [], FORCED: [], FORBIDDEN: [], THOUGHT: []}
    for leaf in live_leaves(tree):
        mode = leaf.scores.get(MODE)
        if mode not in arms:
            raise RolltreeError(
                f"node {leaf.id} of tree {tree.id!r} is of no arm; let the control tool_modes order its prompt"
            )
        leaf.scores.setdefault("outcome", leaf.scores["reward"])
        leaf.scores["called"] = float(calls(tree, leaf) > 0)
        arms[mode].append(leaf)
    return arms


def _success(leaves: list[Node]) -> float | None:
    known = [min(max(leaf.scores["outcome"], 0.0), 1.0) for leaf in leaves]
    return float(np.mean(known)) if known else None
