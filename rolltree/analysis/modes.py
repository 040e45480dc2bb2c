"""One prompt over training: the rollouts of all saved steps merged by prefix, and what share of each step goes where.

A mode is a branch of the merged tree. Its share of a step is the weight of that step's rollouts through it (a fork's
branches share their parent's weight evenly; several trees of a step count alike). Modes appear, grow and die.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rolltree.analysis.decisive import even_weights
from rolltree.analysis.prefix import AnalysisError, merged
from rolltree.analysis.source import RunSource, ViewError, nothing
from rolltree.analysis.text import Pieces
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.node import Array
from rolltree.tree.shape import Floats, Ints
from rolltree.tree.source import TreeColumns
from rolltree.tree.store.archive import Archive, open_forest

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


# Prompts that stand at several steps of a run, and the branches of one of them with their texts.

_OPEN: WeakKeyDictionary[Archive, Archive] = WeakKeyDictionary()
"""All steps of a run, by the archive of its newest step: opened once for each new step."""


@dataclass(frozen=True)
class ShownModes:
    """The merged rollouts of one prompt over time."""

    tree: str
    """A tree of the prompt, for the address."""
    prompt: str
    timeline: Timeline
    texts: tuple[str, ...]
    first: tuple[str, ...]
    """The token with which each branch leaves the others."""


@dataclass(frozen=True)
class Recurring:
    """A prompt that was asked at several steps."""

    tree: str
    text: str
    steps: int


def every_step(source: RunSource) -> Archive:
    """All saved steps of a run as one archive."""
    steps = source.steps()
    if not steps:
        raise ViewError(nothing(source))
    newest = [source.archive(step) for step in steps][-1]  # each is checked for links that lead out
    if newest not in _OPEN:
        _OPEN[newest] = open_forest(source.forests)
    return _OPEN[newest]


def prompts_over_time(archive: Archive, pieces: Pieces) -> list[Recurring]:
    """The prompts that stand at two saved steps or more; those at the most steps first."""
    steps = [step for step, _ in archive.trees]
    actions, at = archive.ragged("actions")
    out: list[Recurring] = []
    for trees in recurring(steps, _prompts(archive)):
        root = int(archive.tree_start[trees[0]])
        text = pieces.text(actions[at[root] : at[root + 1]])
        out.append(Recurring(archive.trees[trees[0]][1], text, len({steps[t] for t in trees})))
    return out


def shown_modes(archive: Archive, pieces: Pieces, tree: str = "") -> ShownModes:
    """One prompt over time: that of a tree, else the one asked at the most steps."""
    steps = [step for step, _ in archive.trees]
    groups = recurring(steps, _prompts(archive))
    if not groups:
        raise ViewError(
            "no prompt stands at two saved steps, so none can be followed; train with --items N, which asks the same "
            "prompts again, and with --forests-every above 0"
        )
    chosen = [g for g in groups if any(archive.trees[t][1] == tree for t in g)] if tree else groups
    if not chosen:
        raise ViewError(f"the prompt of tree {tree!r} stands at one saved step only, or there is no such tree")
    made = timeline(archive, chosen[0], steps)
    texts = pieces.texts([mode.actions for mode in made.modes])
    first = ["", *(pieces.pieces(mode.actions[:1])[0] for mode in made.modes[1:])]
    return ShownModes(archive.trees[chosen[0][0]][1], texts[0], made, tuple(texts), tuple(first))


def picture(found: ShownModes) -> dict[str, Any]:
    """What the page draws: branches with a share and a rate of success per step."""
    modes = found.timeline.modes
    depth: list[int] = []
    for mode in modes:
        depth.append(0 if mode.parent < 0 else depth[mode.parent] + 1)
    return {
        "steps": list(found.timeline.steps),
        "modes": [
            {"parent": m.parent, "depth": d, "text": text, "share": m.share.round(5).tolist(),
             "solved": [None if np.isnan(v) else round(float(v), 4) for v in m.solved], "leaves": m.leaves.tolist()}
            for m, d, text in zip(modes, depth, found.texts, strict=True)
        ],
    }  # fmt: skip


def life(mode: Mode, steps: tuple[int, ...]) -> str:
    """When a branch was there."""
    first, last = mode.alive
    if first == 0 and last == len(steps) - 1:
        return "all along" if (mode.leaves > 0).all() else "comes and goes"
    if last == len(steps) - 1:
        return f"new at {steps[first]}"
    return f"gone after {steps[last]}" if first == 0 else f"{steps[first]} to {steps[last]} only"


def leading(found: ShownModes, most: int) -> list[int]:
    """Places of the branches that changed their share most between any two steps; the prompt is none."""
    modes = found.timeline.modes
    order = sorted(range(1, len(modes)), key=lambda i: -float(np.ptp(modes[i].share)))
    return order[:most]


def _prompts(archive: Archive) -> list[bytes]:
    actions, at = archive.ragged("actions")
    return [actions[at[r] : at[r + 1]].tobytes() for r in archive.tree_start[:-1].tolist()]
