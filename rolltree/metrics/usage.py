"""What became of a step's rollouts, of the tokens they took and of the engine's time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree import Node, Tree
from rolltree.tree.forest import assert_conserved
from rolltree.tree.shape import Bools
from rolltree.tree.source import EventColumns
from rolltree.tree.table import Floats, Table


def settle_usage(table: Table, weights: Floats) -> None:
    """Write what became of each leaf of the credited trees; `weights` is 0 for leaves without credit."""
    for row, weight, live in zip(table.leaf, weights, table.live, strict=True):
        leaf = table.nodes[row]
        if leaf.usage or leaf.status in ("open", "paused"):
            continue
        if weight > 0:
            leaf.usage = "trained"
        else:
            leaf.usage = "dropped: no credit" if live else f"dropped: {why_not_live(leaf)}"


def settle_rest(trees: Iterable[Tree]) -> None:
    """Give leaves of trees that were not credited their reason."""
    for tree in trees:
        for leaf in tree.leaves():
            if not leaf.usage and leaf.status not in ("open", "paused"):
                leaf.usage = f"dropped: {why_not_live(leaf)}"


def why_not_live(leaf: Node) -> str:
    """Why a leaf cannot be trained on."""
    if leaf.status in ("failed", "pruned"):
        return leaf.status
    return "no outcome" if "reward" not in leaf.scores else "not used"


def usage(trees: Iterable[Tree]) -> dict[str, float]:
    """Leaves by what became of them, in all and per reason. Raises if one was lost or left without a reason."""
    found = assert_conserved(trees)
    out = {"rollout/submitted": found.leaves, "rollout/trained": found.trained, "rollout/kept": found.kept,
           "rollout/running": found.running, "rollout/dropped": sum(found.dropped.values())}  # fmt: skip
    out |= {f"rollout/dropped/{reason}": count for reason, count in sorted(found.dropped.items())}
    return {name: float(count) for name, count in out.items()}


BREAKERS = {"verifier": "verifier", "environment": "environment", "engine": "engine", "judge": "judging"}
"""What can break, with the word that its events begin with."""


def failures(r: Rollouts) -> Numbers:
    """Failed leaves as a share of all, and by what broke; calls that were tried again, per leaf."""
    if not len(r.leaf):
        return {}
    events = r.source.events()
    why = [w for kind, w in zip(events.kind, events.why, strict=True) if kind == "fail"]
    said = {name: sum(part in w.partition(":")[0] for w in why) for name, part in BREAKERS.items()}
    out = {"rollout/failed_share": float(r.is_("status", "failed")[r.leaf].mean())}
    out |= {f"rollout/failed/{name}": count / len(r.leaf) for name, count in said.items()}
    return out | {"rollout/retries": sum(kind == "retry" for kind in events.kind) / len(r.leaf)}


def unfinished_rollouts(r: Rollouts) -> Numbers:
    """Rollouts that were still running, aborted or out of budget, and prompts none of whose rollouts ended."""
    if not len(r.leaf):
        return {}
    grown = r.count(r.all) > 0
    return {
        "rollout/starved_prompts": float(starved(r)[grown].mean()),
        "rollout/unfinished": float(unfinished(r).mean()),
    }


def unfinished(r: Rollouts) -> Bools:
    """Leaves that something other than the policy or its length limit stopped."""
    return (r.is_("finish", "budget", "abort") | r.is_("status", "open", "paused"))[r.leaf]


def starved(r: Rollouts) -> Bools:
    """Trees all of whose leaves are unfinished."""
    return (r.count(~unfinished(r)) == 0) & (r.count(unfinished(r)) > 0)


def lost_tokens(r: Rollouts) -> Numbers:
    """Policy tokens below which every leaf was pruned or failed, by which of the two.

    A branch of both kinds counts as pruned.
    """
    pruned, failed = (r.is_("status", word)[r.leaf] for word in ("pruned", "failed"))
    own = r.trainable & ~r.source.numbers("forced").astype(np.bool_) & (r.below(~(pruned | failed)) == 0)
    cut = own & (r.below(pruned) > 0)
    broke = own & ~cut & (r.below(failed) > 0)
    found = {"budget/tokens_pruned": r.length[cut].sum(), "budget/tokens_failed": r.length[broke].sum()}
    return {name: float(tokens) for name, tokens in found.items()}


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
