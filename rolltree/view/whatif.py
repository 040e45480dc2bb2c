"""A what-if as a page or a terminal shows it: the branches at the place, their success, their credit old and new."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rolltree.analysis.whatif import BranchCredit, before_after
from rolltree.errors import RolltreeError
from rolltree.metrics.reward import wilson
from rolltree.tree import Tree
from rolltree.tree.forest import DROPPED
from rolltree.view.source import RunSource
from rolltree.view.text import Pieces
from rolltree.view.whatif_given import credit_of
from rolltree.view.whatif_saved import SavedWhatIf

SHOWN = 60
"""Characters of a branch's text."""


@dataclass(frozen=True)
class WhatIfBranch:
    """A branch at the place."""

    name: str
    text: str
    branch: BranchCredit

    @property
    def success(self) -> str:
        """How many of the judged leaves below are right."""
        below = self.branch.below
        return f"{below.right} of {below.judged}" if below.judged else "–"


@dataclass(frozen=True)
class ShownWhatIf:
    """A what-if with words."""

    saved: SavedWhatIf
    credit: str
    branches: tuple[WhatIfBranch, ...]
    """The node at the place first; empty where no credit could be computed."""
    trouble: str
    """Why there is no credit."""
    old: tuple[int, int]
    """Right and judged leaves behind the place as it was."""
    new: tuple[int, int]
    """Right and judged ones among the new leaves."""

    @property
    def place(self) -> str:
        """Where the new continuations begin."""
        about = self.saved.about
        where = (
            f"token {about.kept} of node {about.node}" if about.start != about.node else f"the end of node {about.node}"
        )
        return f"{about.n} continuations of {about.tree} from {where}"

    @property
    def sentence(self) -> str:
        """What came of it."""
        return f"Behind this place {_share(*self.old)} before; of the new ones {_share(*self.new)}."


def shown_whatif(run: RunSource, saved: SavedWhatIf, pieces: Pieces, credit: str | None = None) -> ShownWhatIf:
    """A saved what-if under its own credit, or another one by name."""
    about = saved.about
    old = _undropped(run.archive(about.step).tree(about.tree))
    new = _undropped(saved.source(run).archive(None).tree(about.tree))
    name = about.credit if credit is None else credit
    trouble, branches = "", list[BranchCredit]()
    try:
        name, made = credit_of(run, name)
        branches = before_after(old, new, about.start, made)
    except RolltreeError as error:
        trouble = str(error)
    shown = [_shown(b, first=i == 0, pieces=pieces) for i, b in enumerate(branches)]
    return ShownWhatIf(saved, name, tuple(shown), trouble, *_counts(old, new, about.start))


def _undropped(tree: Tree) -> Tree:
    """The tree with the leaves that a filter of the run had dropped: a filter may keep the group that has grown."""
    for leaf in tree.leaves():
        if leaf.usage.startswith(DROPPED):
            leaf.usage = ""
    return tree


def _counts(old: Tree, new: Tree, start: int) -> tuple[tuple[int, int], tuple[int, int]]:
    from rolltree.tree.node import is_solved

    before, fresh = [0, 0], [0, 0]
    for leaf in new.leaves(start):
        if "reward" in leaf.scores:
            side = before if leaf.id in old.nodes else fresh
            side[0] += is_solved(leaf.scores)
            side[1] += 1
    return (before[0], before[1]), (fresh[0], fresh[1])


def _shown(branch: BranchCredit, *, first: bool, pieces: Pieces) -> WhatIfBranch:
    node = branch.node
    name = f"up to here (node {node.id})" if first else f"{'new ' if branch.fresh else ''}node {node.id}"
    text = pieces.text(node.actions[-SHOWN:] if first else node.actions[:SHOWN])
    return WhatIfBranch(name, text[-SHOWN:] if first else text[:SHOWN], branch)


def signed(value: float) -> str:
    """A credit in a table; a dash where none was given."""
    return "–" if math.isnan(value) else f"{value:+.3f}"


def _share(right: int, judged: int) -> str:
    if not judged:
        return "nothing was judged"
    rate = wilson(right / judged, judged)
    return f"{right} of {judged} right ({100 * rate.value:.0f} %, {100 * rate.low:.0f}–{100 * rate.high:.0f})"
