"""Several deliveries for one prompt as one tree: the group its credit, filters and shapers see.

A delivery in another context than the bare prompt's keeps that context as hint nodes, one for each slot of its brief; a
hidden slot is left out instead, and the rollouts carry the log-prob of the bare prompt beside the distribution they
were sampled from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rolltree.control.order import Order
from rolltree.generate.random import MARK
from rolltree.tree import Node, Tree
from rolltree.tree.references import moved as moved_references

IDS = frozenset({"children", "head", "original", "removed"})
"""Numbers of events that are node ids."""


def absorb(into: Tree, grown: Tree, order: Order, spans: Mapping[str, tuple[int, int]]) -> list[Node]:
    """Move what was grown for an order below the prompt of `into`; returns the nodes that stand right below it.

    `spans` says where in the grown tree's prompt the slots of its brief stand.
    """
    top = into.prompt
    for slot in order.brief.shown if order.brief is not None and grown.root.children else ():
        start, stop = spans[slot.name]
        notes: dict[str, Any] = {"arm": order.arm, "slot": slot.name}
        top = into.extend(
            top, grown.root.actions[start:stop], role="hint", forced=True, trainable=slot.trainable, birth="forced",
            status="done", actor="control", notes=notes | ({"sources": list(slot.sources)} if slot.sources else {}),
        )  # fmt: skip
        into.event("force", top, order.why, arm=order.arm, tokens=len(top), role="hint", slot=slot.name)
    heads = grown.children(grown.root)
    moved = {grown.root.id: top.id}
    for node in list(grown.walk()):
        if node.parent is None:
            continue
        old, above = node.id, moved[node.parent]
        # Names of runs belong to the tree they grew in: a copy's later growth must not repeat the original's.
        node.notes.pop(MARK, None)
        node.id, node.parent = max(into.nodes) + 1, above
        moved[old] = node.id
        into.adopt(node)
    moved_references((into[i] for i in moved.values()), moved)
    into.prompt.status = "done"
    if not into.prompt.children:
        into.prompt.finish = "budget"
    for event in grown.events:
        if event.node is None or event.node in moved:
            at = None if event.node is None else moved[event.node]
            into.events.append(
                replace(event, node=at, numbers={k: _moved(k, v, moved) for k, v in event.numbers.items()})
            )
    if "failed" in grown.notes:
        into.notes["failed"] = grown.notes["failed"]
    return heads


def _moved(name: str, value: Any, moved: dict[int, int]) -> Any:
    if name not in IDS:
        return value
    if isinstance(value, list):
        return [moved.get(v, v) for v in value]
    return moved.get(value, value)
