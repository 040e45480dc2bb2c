"""One prompt over training: the rollouts of all saved steps merged by prefix, and what share of each step goes where.

A mode is a branch of the merged tree. Its share of a step is the weight of that step's rollouts through it (a fork's
branches share their parent's weight evenly; several trees of a step count alike). Modes appear, grow and die.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.analysis.decisive import even_weights
from rolltree.analysis.prefix import AnalysisError, merged
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.node import Array
from rolltree.tree.shape import Floats, Ints
from rolltree.tree.source import TreeColumns

MOST = 300
"""Branches kept: those with the largest share at any step."""


@dataclass(frozen=True, eq=False)
class Mode:
    """A branch of the merged tree: a stretch of tokens that all its rollouts share."""

    parent: int
    """Place of the branch it grows from; -1 for the prompt."""
    actions: Array
    share: Floats
    """Per step, the part of its rollouts that come through here."""
    solved: Floats
    """Per step, the share of those that succeeded; NaN where none came."""
    leaves: Ints
    """Per step, how many rollouts came through here."""
    ends: bool
    """Whether nothing parts behind it."""

    @property
    def alive(self) -> tuple[int, int]:
        """Places of the first and the last step with a rollout."""
        here = np.flatnonzero(self.leaves)
        return int(here[0]), int(here[-1])


@dataclass(frozen=True, eq=False)
class Timeline:
    """The branches of one prompt, parents before children."""

    steps: tuple[int, ...]
    modes: tuple[Mode, ...]
    folded: int
    """Branches left out because they are small at every step."""


def recurring(steps: Sequence[int | None], prompts: Sequence[bytes]) -> list[list[int]]:
    """Trees by prompt, of the prompts that stand at two steps or more; those at the most steps first."""
    found: dict[bytes, list[int]] = {}
    for tree, prompt in enumerate(prompts):
        found.setdefault(prompt, []).append(tree)
    many = [trees for trees in found.values() if len({steps[t] for t in trees}) > 1]
    return sorted(many, key=lambda trees: -len({steps[t] for t in trees}))


def timeline(source: TreeColumns, trees: Sequence[int], steps: Sequence[int | None], *, most: int = MOST) -> Timeline:
    """Merge some trees of one prompt; `steps` gives the step of every tree of the source."""
    shape, rollouts = source.shape, Rollouts(source)
    known = sorted({s for t in trees if (s := steps[t]) is not None})
    if len(known) < 2:
        raise AnalysisError("these trees are of one step, and time needs two; train with --forests-every and --items")
    judged, solved = np.zeros(len(shape), np.bool_), np.zeros(len(shape), np.bool_)
    judged[rollouts.leaf], solved[rollouts.leaf] = rollouts.judged, rollouts.solved
    column = np.full(len(source.ids), -1)
    column[list(trees)] = [known.index(s) if (s := steps[t]) is not None else -1 for t in trees]
    weight = even_weights(shape, judged[shape.leaf])[shape.leaf] * judged[shape.leaf]
    per_step: list[tuple[Floats, Floats, Ints]] = []
    for step in range(len(known)):
        here = (column[shape.leaf_tree] == step) & judged[shape.leaf]
        own = np.where(here, weight, 0.0)
        total = own.sum() or 1.0
        hits = shape.below(own * solved[shape.leaf])
        per_step.append((shape.below(own) / total, hits / total, shape.below(here.astype(np.int64))))
    m = merged(source, [int(shape.root[t]) for t in trees])
    if (m.shape.parent < 0).sum() != 1:
        raise AnalysisError("these trees have different prompts; give the trees of one prompt")
    share, hits, leaves = (
        np.array([[column[rows].sum() for column in columns] for rows in m.parted])
        for columns in zip(*per_step, strict=True)
    )
    actions, at = source.ragged("actions")
    heads = [s for s in range(len(m.shape)) if m.shape.parent[s] < 0 or m.shape.child_count[m.shape.parent[s]] > 1]
    heads = [s for s in heads if leaves[s].sum() and (m.length[s] or m.shape.parent[s] < 0)]
    kept = set(sorted(heads, key=lambda s: -float(share[s].max()))[:most])
    place: dict[int, int] = {}
    modes: list[Mode] = []
    for span in heads:
        above = int(m.shape.parent[span])
        while above >= 0 and above not in place:
            above = int(m.shape.parent[above])
        if span not in kept or (m.shape.parent[span] >= 0 and above < 0):
            continue
        place[span], chain = len(modes), [span]
        while m.shape.child_count[chain[-1]] == 1:
            chain.append(chain[-1] + 1)
        text = np.concatenate([actions[at[m.row[s]] + m.offset[s] :][: m.length[s]] for s in chain])
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = hits[span] / share[span]
        modes.append(
            Mode(place.get(above, -1), text, share[span], rate, leaves[span], bool(m.shape.is_leaf[chain[-1]]))
        )
    return Timeline(tuple(known), tuple(modes), len(heads) - len(modes))
