"""What failed among rollouts, in words: said at once, and where nothing else is left the end of the run."""

from __future__ import annotations

from collections.abc import Iterable

from rolltree.tree import Tree
from rolltree.visible import shortened

KIND = "failures"
"""Kind of the lines in metrics.jsonl: `failed` leaves of `leaves`, and `why`, all that the first of them said."""


def failures(trees: Iterable[Tree]) -> tuple[int, int, str]:
    """How many rollouts failed, of how many, and what the first of them said with the place in the code."""
    failed = leaves = 0
    first = ""
    for tree in trees:
        for leaf in tree.leaves():
            leaves += 1
            failed += leaf.status == "failed"
        for event in tree.events:
            if event.kind == "fail" and not first:
                place = event.numbers.get("place")
                first = event.why + (f" ({place})" if place else "")
    return failed, leaves, first


def told(failed: int, leaves: int, first: str) -> str:
    """One line about so many failures; empty where there are none."""
    return f"{failed} of {leaves} rollouts failed; the first: {first}" if failed else ""


def said_of(trees: Iterable[Tree]) -> str:
    """One line about the failures, as long as somebody reads; empty where there are none."""
    failed, leaves, first = failures(trees)
    return told(failed, leaves, shortened(first))


def all_failed(trees: Iterable[Tree]) -> str:
    """One line where there are rollouts and every one of them failed; else nothing."""
    failed, leaves, first = failures(trees)
    return f"all {leaves} rollouts failed; the first: {shortened(first)}" if failed and failed == leaves else ""
