"""Actions as the nodes of a search: what is known of them before and after they are done, and the way back to them.

A node stands for an action that was proposed, and, once it was done, for the place it led to. Places to which one may
return at once are checkpoints; from there the actions in between are done again. What cannot be undone is never done
twice, so no way back leads across it.
"""

from __future__ import annotations

from typing import Any

from rolltree.generate.search.graph import SearchNode
from rolltree.task.protocol import ActionKind

KIND, NAME, COUNT, ENDED = "kind", "action", "count", "ended"
"""Keys in a node's notes: what kind of action it is, what names it, how many proposals were merged in it, and whether
the episode was over after it."""
DESTRUCTIVE, CHECKPOINT = "destructive", "checkpoint"
"""Keys in a node's notes, and parts of an environment's reply: whether the action cannot be undone (as seen after it
was done), and whether one may return at once to where it led (where nothing is said one may)."""


def kind_of(node: SearchNode[Any]) -> ActionKind:
    """What kind of action it is, as far as is known: what was seen when it was done goes before what was said of it."""
    said: ActionKind = node.notes.get(KIND, "plain")
    seen: bool | None = node.notes.get(DESTRUCTIVE)
    if seen is None:
        return said
    return "destructive" if seen else "plain" if said == "destructive" else said


def repeats(node: SearchNode[Any]) -> int:
    """How many times in a row the node's action stands at the end of its path, itself included."""
    names = [n.notes.get(NAME) for n in node.path()[1:]][::-1]
    return next((i for i, name in enumerate(names) if name != names[0]), len(names))


def way_back(target: SearchNode[Any], here: SearchNode[Any] | None = None) -> list[SearchNode[Any]] | None:
    """What must be done again before a proposed action can be done, from `here` or the nearest checkpoint above it.

    Empty = it can be done at once; None = no way leads there without doing again what cannot be undone.
    """
    again: list[SearchNode[Any]] = []
    place = target.parent
    while place is not None and place is not here and place.parent is not None:
        if place.notes.get(CHECKPOINT, True):
            break
        if kind_of(place) == "destructive":
            return None
        again.append(place)
        place = place.parent
    return again[::-1]
