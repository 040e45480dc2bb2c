"""Decisive tokens with their texts: the ranking of `rolltree.analysis.decisive`, as a page or a terminal shows it."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from rolltree.analysis.decisive import PRIOR, Decisions, Fork, ForkBranch, decisions
from rolltree.tree.store.archive import Archive
from rolltree.view.outline import Outline, outline
from rolltree.view.source import RunSource
from rolltree.view.text import Pieces

CONTEXT = 40
"""Characters shown before a fork."""
SHOWN = 60
"""Characters shown of a branch."""
_COMPUTED: WeakKeyDictionary[Archive, dict[tuple[float, float], Decisions]] = WeakKeyDictionary()


@dataclass(frozen=True)
class ShownBranch:
    """A branch of a fork, with its text."""

    token: str
    """The token with which it leaves the others."""
    rest: str
    """What follows on it, up to where it parts again."""
    branch: ForkBranch


@dataclass(frozen=True)
class ShownFork:
    """A fork with the words before it."""

    item: str
    context: str
    fork: Fork
    branches: tuple[ShownBranch, ...]

    @property
    def sentence(self) -> str:
        """What the most decisive token did."""
        first, fork = self.branches[0], self.fork
        return f"“{first.token}” took {percent(fork.before)} to {percent(first.branch.after)}"


@dataclass(frozen=True)
class ShownDecisions:
    """The ranked forks of a step."""

    step: int | None
    forks: tuple[ShownFork, ...]
    total: int
    branches: int
    clear: int

    @property
    def sentence(self) -> str:
        """How much of the ranking is more than chance."""
        if not self.total:
            return (
                "No fork can be judged: it takes a prompt with right and wrong rollouts, and a branch behind which at "
                "least two rollouts go on independently."
            )
        forks = "1 fork" if self.total == 1 else f"{self.total:,} forks"
        return (
            f"{forks} with {self.branches:,} branches were judged. The 95 % interval of {self.clear:,} leaves no "
            f"change out; chance alone would give about {0.05 * self.branches:.0f}."
        )


def shown_decisions(
    source: RunSource, step: int | None, pieces: Pieces, *, tree: str = "", most: int = 40, prior: float = PRIOR,
    least: float = 2.0,
) -> ShownDecisions:  # fmt: skip
    """The most decisive forks of a saved step, of one tree where it is named."""
    archive = source.archive(step)
    only = None if not tree else [outline(archive, tree).index]
    found = _found(archive, prior, least) if only is None else decisions(archive, only, prior=prior, least=least)
    outlines: dict[str, Outline] = {}
    forks: list[ShownFork] = []
    for fork in found.forks[:most]:
        at = outlines.setdefault(fork.tree, outline(archive, fork.tree))
        forks.append(_fork(archive, at, fork, pieces))
    return ShownDecisions(step, tuple(forks), len(found.forks), found.branches, found.clear)


def percent(share: float) -> str:
    """A share as a person reads it."""
    return f"{100 * share:.0f} %"


def interval(branch: ForkBranch) -> str:
    """The change and its interval, in points of a hundred."""
    low, high = 100 * branch.low, 100 * branch.high
    return f"{100 * branch.change:+.0f} ({low:+.0f} to {high:+.0f})"


def newest_step(source: RunSource) -> int | None:
    """The newest step whose rollouts were saved; None for a single forest, and where there is none."""
    steps = source.steps()
    return steps[-1] if steps else None


def _found(archive: Archive, prior: float, least: float) -> Decisions:
    known = _COMPUTED.setdefault(archive, {})
    if (prior, least) not in known:
        known[prior, least] = decisions(archive, prior=prior, least=least)
    return known[prior, least]


def _fork(archive: Archive, tree: Outline, fork: Fork, pieces: Pieces) -> ShownFork:
    actions, at = archive.ragged("actions")
    row = tree.row(fork.decisive.node)
    lo = int(at[tree.lo + row])
    before = [actions[at[tree.lo + r] : at[tree.lo + r + 1]] for r in tree.path(row)[:-1]]
    words = pieces.texts([*before, actions[lo : lo + fork.decisive.at]])
    branches: list[ShownBranch] = []
    for branch in fork.branches:
        token, *rest = pieces.pieces(branch.actions)
        branches.append(ShownBranch(token, "".join(rest)[:SHOWN], branch))
    return ShownFork(tree.id, "".join(words)[-CONTEXT:], fork, tuple(branches))
