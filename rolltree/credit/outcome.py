"""The numbers a credit starts from, fetched and checked: a missing or non-finite one names its tree and node."""

from __future__ import annotations

import numpy as np

from rolltree.credit.advantage import CreditError
from rolltree.tree.table import Bools, Floats, Ints, Table


def outcomes(table: Table, use: Bools | None = None) -> Floats:
    """Reward per leaf, 0 where a leaf is not used (default: not live)."""
    return leaf_scores(table, "reward", use)


def leaf_scores(table: Table, name: str, use: Bools | None = None, *, missing: float | None = None) -> Floats:
    """A named score per leaf; 0 where a leaf is not used. `missing` stands in for an absent one, else it is refused."""
    use = table.live if use is None else use & table.live
    values = table.reward if name == "reward" else table.score(name)[table.leaf]
    if missing is not None:
        given = np.fromiter((name in table.nodes[i].scores for i in table.leaf), np.bool_, len(table.leaf))
        values = np.where(given, values, missing)
    values = np.where(use, values, 0.0)
    _refuse(table, table.leaf[~np.isfinite(values)], name)
    return values


def root_scores(table: Table, name: str) -> Floats:
    """A named score of each tree's prompt; trees without live leaves may lack it."""
    needed = np.bincount(table.leaf_tree[table.live], minlength=len(table.trees)) > 0
    values = np.where(needed, table.score(name)[table.root], 0.0)
    _refuse(table, table.root[~np.isfinite(values)], name)
    return values


def node_scores(table: Table, name: str, rows: Ints) -> Floats:
    """A named score of these nodes."""
    values = table.score(name)[rows]
    _refuse(table, rows[~np.isfinite(values)], name)
    return values


def step_rewards(table: Table) -> Floats:
    """Step reward per node, 0 where none was granted; a NaN or infinite one is refused."""
    values = np.fromiter((n.scores.get("step_reward", 0.0) for n in table.nodes), np.float64, len(table.nodes))
    _refuse(table, np.flatnonzero(~np.isfinite(values)), "step_reward")
    return values


def action_values(table: Table, name: str) -> Floats:
    """A per-action array of the nodes (a field such as `entropy`, or `notes[name]`); 0 where nothing is trained on.

    Every trained action on the path of a live leaf must have a finite number.
    """
    if name in ("logp", "sampling_logprob", "entropy"):
        values = table.flat(name)
    else:
        values = np.full(table.actions, np.nan)
        for node, start, length in zip(table.nodes, table.start, table.length, strict=True):
            if name in node.notes:
                values[start : start + length] = node.notes[name]
    used = table.loss_mask & np.repeat(table.below(table.live.astype(np.float64)) > 0, table.length)
    lacking = used & ~np.isfinite(values)
    if lacking.any():
        row = int(np.repeat(np.arange(len(table.nodes)), table.length)[lacking][0])
        raise CreditError(
            f"{where(table, row)} has no finite {name!r} for all its actions; ask the engine for it while sampling, "
            "or score the forest again"
        )
    return np.where(used, values, 0.0)


def where(table: Table, row: int) -> str:
    """The node at a row, in words."""
    return f"node {table.nodes[row].id} of tree {table.trees[table.tree[row]].id!r}"


def _refuse(table: Table, rows: Ints, name: str) -> None:
    if len(rows):
        value = table.nodes[rows[0]].scores.get(name)
        said = f"has no {name!r} score" if value is None else f"has a {name!r} of {value}, not a finite number"
        raise CreditError(f"{where(table, int(rows[0]))} {said}; score it, or mark the node failed to leave it out")
