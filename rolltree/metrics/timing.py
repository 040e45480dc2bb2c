"""How busy an engine was, from the clock times of a forest's events."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.source import EventColumns

BEGINS = frozenset({"extend", "fork"})
ENDS = frozenset({"extend", "fork", "stop", "fail", "pause", "prune", "act", "verify"})


def timing(r: Rollouts) -> Numbers:
    """Share of the engine's peak load that stood idle while the rollouts grew; from the clock times of events."""
    share = idle(r.source.events())
    return {} if share is None else {"time/idle_load": share}


def idle(events: EventColumns) -> float | None:
    """1 − mean over most requests in flight, from the first request to the last answer; None without clock times.

    A request begins with the event that names its node among its `children`, and ends with the node's next event.
    """
    spans = _spans(events)
    if len(spans) < 2:
        return None
    begin, end = np.array(spans, np.float64).T
    whole = float(end.max() - begin.min())
    if whole <= 0:
        return None
    times = np.concatenate([begin, end])
    # At equal times ends come first: a slot that is handed on is one slot.
    change = np.concatenate([np.ones(len(begin)), -np.ones(len(end))])
    order = np.lexsort((change, times))
    most = float(np.cumsum(change[order]).max())
    return 1.0 - float((end - begin).sum()) / (most * whole) if most > 0 else None


def _spans(events: EventColumns) -> list[tuple[float, float]]:
    running: dict[tuple[int, int], float] = {}
    out: list[tuple[float, float]] = []
    trees, nodes, at = events.tree.tolist(), events.node.tolist(), events.at.tolist()
    for i, kind in enumerate(events.kind):
        if kind in ENDS and (began := running.pop((trees[i], nodes[i]), None)) is not None:
            out.append((began, at[i]))
        if kind in BEGINS:
            children = events.numbers_of(i).get("children", ())
            running.update({(trees[i], int(child)): at[i] for child in children})
    return out
