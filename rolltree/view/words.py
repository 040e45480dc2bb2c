"""Decisions in words: what was done at a node, why, and the numbers that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rolltree.tree import Event

DECISIONS = ("fork", "prune", "stop", "fail", "pause", "resume", "select", "allocate", "backfill", "splice", "graft",
             "drop", "retry", "budget", "force")  # fmt: skip
"""What a list of decisions shows at first; the rest is bookkeeping."""
_DONE: Mapping[str, str] = {
    "start": "started", "extend": "was continued", "force": "was given text it did not sample", "fork": "was forked",
    "cut": "was cut in two", "graft": "was grafted", "splice": "was spliced", "stop": "ended", "prune": "was pruned",
    "pause": "was set aside", "resume": "went on", "fail": "failed", "retry": "was tried again", "act": "was answered",
    "verify": "was scored", "backfill": "was filled up", "allocate": "was given a budget", "select": "was selected",
    "drop": "was dropped", "train": "was trained on", "budget": "met the end of the budget", "note": "",
}  # fmt: skip


@dataclass(frozen=True)
class EventText:
    """An event as a sentence, with the nodes it is about."""

    kind: str
    node: int | None
    sentence: str
    numbers: tuple[tuple[str, str], ...]
    children: tuple[int, ...]
    """Nodes it made or removed, where the event names them."""
    at: float


def event_text(event: Event) -> EventText:
    """An event in words."""
    who = "The tree" if event.node is None else f"Node {event.node}"
    rest = dict(event.numbers)
    children = _nodes(rest.pop("children", None) or rest.get("removed"))
    did = _DONE.get(event.kind, event.kind)
    if event.kind == "fork" and children:
        did = f"was forked into {len(children)}" if len(children) > 1 else "got one more branch"
    if event.kind == "prune" and "nodes" in rest:
        count = rest.pop("nodes")
        did = f"was pruned with {count} nodes in all" if count != 1 else "was pruned"
    sentence = f"{who} {did}".rstrip() + (f": {event.why}" if event.why else "")
    return EventText(
        event.kind, event.node, sentence, tuple((k, shown(v)) for k, v in rest.items()), children, event.at
    )


def shown(value: Any) -> str:
    """A number, word or structure as a person reads it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return f"{value + 0.0:.4g}"  # no minus before a zero
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {shown(v)}" for k, v in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        parts = [shown(v) for v in value]
        return ", ".join(parts[:12]) + (f" … ({len(parts)} in all)" if len(parts) > 12 else "")
    return str(value)


def _nodes(value: Any) -> tuple[int, ...]:
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, (list, tuple)) else ()
