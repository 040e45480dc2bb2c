"""Decisive tokens: where a tree forked, and what each branch did to the chance of success.

At a place where rollouts part, the success of those that took a branch is held against that of all that came there:

    change = V(after the branch) − V(before it) = (1 − share) · (V(branch) − V(the others))

V is the share of solved rollouts, each leaf weighing as its forks say: a fork's branches share their parent's weight
evenly. `share` is the branch's part of that weight. Rollouts are merged by prefix first, so a group of independent
samples forks wherever its answers begin to differ.

What counts in an interval is not leaves but independent continuations: leaves that share tokens behind the place count
as one, by their mean. Their effective number is (Σw)²/Σw² (Kish). The interval is Agresti and Caffo's for the
difference of two independent rates, times (1 − share). Forks are ranked by the change after shrinkage: each side is
given `prior` further observations that succeeded as often as the whole fork, so that one lucky rollout out of two does
not lead the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from rolltree.analysis.prefix import AnalysisError, Merged, Merging
from rolltree.analysis.source import RunSource
from rolltree.analysis.text import Pieces
from rolltree.analysis.tree_rows import TreeRows, tree_rows
from rolltree.metrics.reward import difference
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.node import Array
from rolltree.tree.shape import Floats, Shape
from rolltree.tree.source import TreeColumns
from rolltree.tree.store.archive import Archive

PRIOR = 4.0
"""Observations at the fork's own rate that each side is given for the ranking (as many as Agresti and Coull add)."""


@dataclass(frozen=True, eq=False)
class ForkBranch:
    """What one branch of a fork did to the chance of success."""

    node: int
    """The node that holds its first token."""
    at: int
    """Which of that node's actions this is."""
    actions: Array
    """All its tokens, up to where the rollouts on it part again."""
    role: str
    """Who wrote the first of them."""
    forced: bool
    """Whether a method chose it instead of sampling it."""
    share: float
    """Its part of the rollouts that came to the fork."""
    leaves: int
    continuations: float
    """Effective number of independent continuations behind it; 1 where nothing parts again."""
    after: float
    """Share of its rollouts that succeeded."""
    change: float
    """What it changed: `after` minus the fork's `before`."""
    low: float
    high: float
    """The 95 % interval of the change."""
    shrunk: float
    """The change as it is ranked by."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves no change out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Fork:
    """A place where rollouts part, the most decisive branch first."""

    tree: str
    step: int | None
    position: int
    """Actions from the start of the prompt to the fork."""
    before: float
    """Share of the rollouts through this place that succeeded."""
    leaves: int
    branches: tuple[ForkBranch, ...]
    """Those with enough independent continuations."""
    others: int
    """Branches with fewer: what they changed cannot be told from luck."""

    @property
    def decisive(self) -> ForkBranch:
        """The branch that changed most."""
        return self.branches[0]


@dataclass(frozen=True)
class Decisions:
    """The forks of some trees, ranked, and how much of the ranking chance alone would give."""

    forks: tuple[Fork, ...]
    branches: int
    """All branches that were judged."""
    clear: int
    """Those whose interval leaves no change out; chance alone would give about 5 % of `branches`."""


def decisions(
    source: TreeColumns, trees: Iterable[int] | None = None, *, weights: Floats | None = None, prior: float = PRIOR,
    least: float = 2.0, steps: Sequence[int | None] | None = None,
) -> Decisions:  # fmt: skip
    """The forks of some trees of a forest, in memory (`table`) or saved (`open_forest`), ranked by what they changed.

    `weights` gives every leaf's weight instead of the forks' even shares (probabilities of enumerated paths, say).
    `least` is the number of independent continuations below which a branch is not judged. `prior=0` ranks by the plain
    change. `steps` names the step of each tree.
    """
    if prior < 0 or least < 1:
        raise AnalysisError(f"prior={prior} and least={least} make no sense; give at least 0 and at least 1")
    work = _Scan(source, weights, prior, least)
    chosen = range(len(source.ids)) if trees is None else trees
    forks = [f for t in chosen for f in work.forks(t, None if steps is None else steps[t])]
    forks.sort(key=lambda f: -abs(f.decisive.shrunk))
    judged = [b for f in forks for b in f.branches]
    return Decisions(tuple(forks), len(judged), sum(b.clear for b in judged))


def even_weights(shape: Shape, counted: np.ndarray) -> Floats:
    """Per node, its share of its tree: a node's weight is shared evenly among its children with a counted leaf."""
    alive = shape.below(counted.astype(np.float64)) > 0
    has = (shape.parent >= 0) & alive
    siblings = np.bincount(shape.parent[has], minlength=len(shape))
    out = np.where(shape.parent < 0, 1.0, 0.0)
    for rows in shape.levels[1:]:
        here = rows[alive[rows]]
        above = shape.parent[here]
        out[here] = out[above] / siblings[above]
    return out


class _Scan:
    """The leaves of a forest with their weights and outcomes, and the forks of one tree after the other."""

    def __init__(self, source: TreeColumns, weights: Floats | None, prior: float, least: float) -> None:
        self.source, self.prior, self.least = source, prior, least
        shape, rollouts = source.shape, Rollouts(source)
        judged, solved = np.zeros(len(shape), np.bool_), np.zeros(len(shape), np.bool_)
        judged[rollouts.leaf], solved[rollouts.leaf] = rollouts.judged, rollouts.solved
        counted = judged[shape.leaf]
        if weights is not None and (len(weights) != len(counted) or not (weights[counted] > 0).all()):
            raise AnalysisError("weights= needs one number above 0 for every judged leaf, in the order of the leaves")
        own = even_weights(shape, counted)[shape.leaf] if weights is None else np.asarray(weights, np.float64)
        own = np.where(counted, own, 0.0)
        self.mass, self.hits = shape.below(own), shape.below(own * solved[shape.leaf])
        self.count = shape.below(counted.astype(np.int64))
        self.merging = Merging(source)
        self.ids = source.numbers("id")
        self.role = source.words("role")
        self.forced = source.numbers("forced").astype(np.bool_)
        self.actions, self.at = source.ragged("actions")

    def forks(self, tree: int, step: int | None) -> list[Fork]:
        root = int(self.source.shape.root[tree])
        if not 0 < self.hits[root] < self.mass[root]:
            return []  # nothing decided: all rollouts ended alike
        m = self.merging.merge([root])
        out: list[Fork] = []
        for span in np.flatnonzero(m.shape.child_count > 1).tolist():
            rows = m.parted[span]
            if 0 < self.hits[rows].sum() < self.mass[rows].sum():
                position = int(m.length[m.shape.path(span)].sum())
                fork = self._fork(m, span, self.source.ids[tree], step, position)
                out += [fork] if fork.branches else []
        return out

    def _fork(self, m: Merged, span: int, tree: str, step: int | None, position: int) -> Fork:
        here = m.parted[span]
        before, _, mass = self._rate(here)
        groups = [(child, m.entered[child]) for child in m.shape.children(span)]
        groups = [(child, rows) for child, rows in groups if self.mass[rows].sum() > 0]
        branches: list[ForkBranch] = []
        for child, _ in groups if len(groups) > 1 else []:
            if not m.length[child]:
                continue  # a rollout that ends here
            rest = np.concatenate([rows for other, rows in groups if other != child])
            made = self._branch(m, child, rest, before, mass)
            branches += [made] if made.continuations >= self.least - 1e-9 else []
        branches.sort(key=lambda b: -abs(b.shrunk))
        return Fork(tree, step, position, before, int(self.count[here].sum()), tuple(branches),
                    len(groups) - len(branches))  # fmt: skip

    def _branch(self, m: Merged, child: int, rest: np.ndarray, before: float, mass: float) -> ForkBranch:
        spans = [child]
        while m.shape.child_count[spans[-1]] == 1:
            spans.append(spans[-1] + 1)
        rows = m.parted[spans[-1]]
        after, units, own = self._rate(rows)
        other, others, _ = self._rate(rest)
        share = own / mass
        change = difference(after, units, other, others)
        pulled = (units * after + self.prior * before) / (units + self.prior)
        pulled -= (others * other + self.prior * before) / (others + self.prior)
        row, at = int(m.row[child]), int(m.offset[child])
        parts = [self.actions[self.at[m.row[s]] + m.offset[s] :][: m.length[s]] for s in spans]
        codes, words = self.role
        return ForkBranch(
            int(self.ids[row]), at, np.concatenate(parts), words[int(codes[row])], bool(self.forced[row]), share,
            int(self.count[rows].sum()), units, after, after - before, (1 - share) * change.low,
            (1 - share) * change.high, (1 - share) * pulled,
        )  # fmt: skip

    def _rate(self, rows: np.ndarray) -> tuple[float, float, float]:
        """Share of success of some independent continuations, their effective number, and their weight."""
        mass = self.mass[rows]
        total = float(mass.sum())
        return float(self.hits[rows].sum()) / total, total**2 / float((mass**2).sum()), total


# Decisive tokens with their texts: the ranking of `rolltree.analysis.decisive`, as a page or a terminal shows it.

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
    only = None if not tree else [tree_rows(archive, tree).index]
    found = _found(archive, prior, least) if only is None else decisions(archive, only, prior=prior, least=least)
    outlines: dict[str, TreeRows] = {}
    forks: list[ShownFork] = []
    for fork in found.forks[:most]:
        at = outlines.setdefault(fork.tree, tree_rows(archive, fork.tree))
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


def _fork(archive: Archive, tree: TreeRows, fork: Fork, pieces: Pieces) -> ShownFork:
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
