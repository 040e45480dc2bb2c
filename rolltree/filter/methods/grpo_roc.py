"""Which of many rollouts teach: all classes in proportion, and of the right ones the cleanest (GRPO-RoC)."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.filter.groups import live_leaves
from rolltree.tree import Node, Tree


def flaws(tree: Tree, leaf: Node) -> float:
    """How unclean a rollout is: the share of its tool calls that failed, plus 1 − its score `format` where it has one.

    Without a tool call the first part is 1/2 in a tree where the environment was ever asked, and 0 where none is.
    """
    calls = [n for n in tree.path(leaf) if n.role == "env"]
    asked = bool(calls) or any(n.role == "env" for n in tree)
    errors = sum(bool(n.notes.get("failed")) for n in calls) / len(calls) if calls else 0.5 * asked
    return errors + (1 - min(max(leaf.scores.get("format", 1.0), 0.0), 1.0))


def quotas(right: int, wrong: int, keep: int, least: int = 2) -> tuple[int, int]:
    """How many right and wrong rollouts of a group are kept: in proportion, but `least` of each if there are any.

    As released (arXiv 2508.20722): a class that would get `least` or fewer gets as many as it has, at most `least`.
    """
    total = right + wrong
    if total <= keep:
        return right, wrong
    keep_wrong = round(wrong * keep / total)
    keep_right = keep - keep_wrong
    if keep_wrong <= least:
        keep_wrong = min(least, wrong)
        keep_right = keep - keep_wrong
    elif keep_right <= least:
        keep_right = min(least, right)
        keep_wrong = keep - keep_right
    return min(keep_right, right), min(keep_wrong, wrong)


@dataclass(frozen=True, slots=True)
class Cleanest:
    """Keeps `keep` leaves of a group before credit: wrong ones in order of creation, right ones with fewest flaws.

    Taking the wrong ones as they come keeps failures diverse. The paper describes a draw that favours clean ones; the
    released code, followed here, takes the cleanest. The rest is dropped with that reason.
    """

    keep: int = 16
    least: int = 2
    correct: float = 0.5

    def __call__(self, tree: Tree, limit: int) -> None:
        """Drop what is not kept; groups no larger than `keep` stay whole."""
        leaves = sorted(live_leaves(tree), key=lambda n: n.id)
        right = [n for n in leaves if n.scores["reward"] > self.correct]
        wrong = [n for n in leaves if n.scores["reward"] <= self.correct]
        keep_right, keep_wrong = quotas(len(right), len(wrong), self.keep, self.least)
        right.sort(key=lambda n: (round(flaws(tree, n), 9), n.id))
        for leaf in (*right[keep_right:], *wrong[keep_wrong:]):
            leaf.usage = "dropped: enough cleaner rollouts of its kind"
        tree.event("select", None, "the cleanest right ones", right=keep_right, wrong=keep_wrong, of=len(leaves))
