"""Prompts that stand at several steps of a run, and the branches of one of them with their texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rolltree.analysis.modes import Mode, Timeline, recurring, timeline
from rolltree.tree.store.archive import Archive, open_forest
from rolltree.view.links import ViewError
from rolltree.view.source import RunSource, nothing
from rolltree.view.text import Pieces

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
