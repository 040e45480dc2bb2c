"""How two paths differ: their first token that is not the same, what is the same behind it, and their facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np

from rolltree.analysis.text import Pieces
from rolltree.view.colours import Colouring
from rolltree.view.fork import Parting
from rolltree.view.model import node_facts, path_strip
from rolltree.view.outline import Outline
from rolltree.view.rows import Record
from rolltree.view.strip import Strip, TokenRun
from rolltree.view.words import shown

ALIGNED = 2000
"""Tokens up to which two sides are aligned; longer ones are compared place by place."""

BLOCK = 4
"""Tokens in a row that count as the same between two differences."""


@dataclass(frozen=True)
class Side:
    """What one leaf has behind the fork; the fork itself where it has nothing of its own."""

    row: int
    strip: Strip
    records: tuple[Record, ...]
    ids: tuple[object, ...]


@dataclass(frozen=True)
class Taken:
    """What stands on one side at the first difference, in words."""

    text: str
    logp: str
    chance: str
    reward: str


@dataclass(frozen=True)
class Difference:
    """Where two sides first differ."""

    alike: int
    """Tokens behind the fork that are still the same."""
    left: Taken
    right: Taken


def sides(tree: Outline, parted: Parting, pieces: Pieces, colouring: Colouring) -> tuple[Side, Side]:
    """Both sides on the tree's scale, with the tokens that the other side has too marked as the same."""
    made: list[Side] = []
    for own in (parted.left, parted.right):
        rows = own or (parted.fork,)
        laid, records = path_strip(tree, rows, pieces, colouring)
        ids = tuple(x for r in records for x in r.node.actions.tolist()) if own else ()
        made.append(Side(rows[-1], laid, tuple(records), tuple(str(x) if isinstance(x, list) else x for x in ids)))
    same = _same(made[0].ids, made[1].ids)
    left, right = (replace(side, strip=_marked(side.strip, flags)) for side, flags in zip(made, same, strict=True))
    return left, right


def first_difference(left: Side, right: Side, pieces: Pieces) -> Difference | None:
    """The first token behind the fork that is not the same; None where none differs."""
    pairs = zip(left.ids, right.ids, strict=False)
    alike = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left.ids), len(right.ids)))
    if alike >= max(len(left.ids), len(right.ids)):
        return None
    return Difference(alike, _taken(left, alike, pieces), _taken(right, alike, pieces))


def differing(tree: Outline, left: Side, right: Side) -> list[tuple[str, str, str]]:
    """The facts of two leaves that are not the same on both."""
    facts = [dict(node_facts(tree, side.row, side.records[-1])) for side in (left, right)]
    names = dict.fromkeys([*facts[0], *facts[1]])
    told = [(name, facts[0].get(name, "–"), facts[1].get(name, "–")) for name in names]
    return [(name, a, b) for name, a, b in told if a != b]


def _taken(side: Side, place: int, pieces: Pieces) -> Taken:
    last = side.records[-1].node.scores.get("reward")
    reward = "–" if last is None else shown(last)
    at = 0
    for record in side.records if side.ids else ():
        node = record.node
        if place < at + len(node):
            logp = None if node.logp is None else float(node.logp[place - at])
            text = pieces.pieces(node.actions[place - at : place - at + 1])[0]
            if logp is None or not np.isfinite(logp):
                return Taken(f"“{text}”", "–", "–", reward)
            return Taken(f"“{text}”", f"{logp:.4g}", f"{100 * np.exp(logp):.1f} %", reward)
        at += len(node)
    return Taken("ends here", "–", "–", reward)


def _same(a: Sequence[object], b: Sequence[object]) -> tuple[list[bool], list[bool]]:
    left, right = [False] * len(a), [False] * len(b)
    if max(len(a), len(b)) > ALIGNED:
        for i in range(min(len(a), len(b))):
            left[i] = right[i] = a[i] == b[i]
        return left, right
    for i, j, size in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        edge = i == j == 0 or (i + size, j + size) == (len(a), len(b))
        if size < BLOCK and not edge:
            continue  # a few tokens that are somewhere on the other side too say nothing
        left[i : i + size] = [True] * size
        right[j : j + size] = [True] * size
    return left, right


def _marked(strip: Strip, flags: Sequence[bool]) -> Strip:
    """The strip with a flag per token; one whose middle is left out stays as it is."""
    if strip.hidden or not flags:
        return strip
    at, runs = 0, list[TokenRun]()
    for run in strip.runs:
        runs.append(replace(run, same=list(flags[at : at + len(run.texts)])))
        at += len(run.texts)
    return replace(strip, runs=tuple(runs))
