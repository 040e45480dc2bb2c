"""What forests say about how their rollouts were made: the numbers of a rollout card.

Everything is counted over nodes and leaves as they stand in the trees, so cards can be made for forests written by any
program. Shares are of policy tokens on the paths of leaves that were trained on, unless named otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.tree import Node, Tree
from rolltree.tree.views import effective_branches, leaf_counts


@dataclass(frozen=True)
class Spread:
    """A handful of numbers about many."""

    mean: float
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Topology:
    """The shape of the trees."""

    kind: str
    """linear, group, tree or multi-turn (tree, multi-turn)."""
    trees: int
    leaves: int
    group: Spread
    """Leaves per prompt."""
    depth: Spread
    """Nodes on a path, the prompt not counted."""
    forks: Mapping[str, int]
    """Nodes with siblings below the root, by how they were born."""
    sharing: float
    """Policy tokens on all paths per policy token decoded: 1 = nothing shared."""
    branches: float
    """Effective branches at the root, on average."""
    turns: Spread
    """Environment answers per path."""


@dataclass(frozen=True)
class Departures:
    """How the trained-on distribution differs from plain sampling of the policy."""

    forced: float
    """Tokens a method chose instead of the policy, also hints and templates on trained paths."""
    tempered: float
    """Sampled tokens whose sampling distribution was not the policy's own (temperature, truncation, hooks)."""
    tempered_mismatch: float
    """Mean of sampling_logprob − logp over those with both: an estimate of the divergence per token."""
    unknown_distribution: float
    """Tokens with no behaviour log-prob: greedy, spliced, or not recorded."""
    foreign: float
    """Trained tokens written by another actor than the policy."""
    replayed: float
    """Tokens grafted from earlier rollouts."""
    stale: float
    """Tokens written under older weights than the newest of their tree."""
    truncated: float
    """Trained leaves cut at a length limit or by a budget."""
    selected: float
    """Finished leaves with an outcome that did not get to teach."""
    masked: float
    """Policy tokens on trained paths that were masked out."""


@dataclass(frozen=True)
class CardSelection:
    """What selection did to the outcome and the length: all judged leaves against those trained on."""

    reward_all: float
    reward_trained: float
    length_all: float
    length_trained: float


@dataclass(frozen=True)
class Numbers:
    """All numbers of a card."""

    topology: Topology
    tokens: Mapping[str, int]
    """Tokens by role, each prefix once."""
    finishes: Mapping[str, int]
    fates: Mapping[str, int]
    """Leaves by what became of them."""
    decisions: Mapping[str, int]
    """Events by kind: forks, prunes, stops and their like."""
    staleness: Spread | None
    """Versions a trained token is behind the newest of its tree; None where versions were not recorded."""
    departures: Departures
    selection: CardSelection


def numbers(trees: Iterable[Tree]) -> Numbers:
    """Count everything a card states."""
    forest = [t for t in trees if len(t) > 1]
    leaves = [(tree, leaf) for tree in forest for leaf in tree.leaves()]
    trained = [(t, n) for t, n in leaves if _taught(n)]
    tokens: Counter[str] = Counter()
    decisions: Counter[str] = Counter()
    for tree in forest:
        for node in tree:
            tokens[node.role] += len(node)
        decisions.update(e.kind for e in tree.events)
    behind = np.concatenate([_staleness(tree) for tree in forest]) if forest else np.zeros(0)
    return Numbers(
        topology=_topology(forest, leaves),
        tokens=dict(tokens),
        finishes=dict(Counter(n.finish or n.status for _, n in leaves)),
        fates=dict(Counter(_fate(n) for _, n in leaves)),
        decisions=dict(decisions),
        staleness=_spread(behind) if len(behind) else None,
        departures=_departures(trained, leaves),
        selection=_selection(leaves, trained),
    )


def _topology(forest: Sequence[Tree], leaves: Sequence[tuple[Tree, Node]]) -> Topology:
    groups = [len(t.leaves()) for t in forest]
    own = on_paths = 0
    forks: Counter[str] = Counter()
    for tree in forest:
        counts = leaf_counts(tree)
        for node in tree:
            if node.role == "policy":
                own += len(node)
                on_paths += len(node) * counts[node.id]
            if node.parent is not None and len(node.children) > 1:
                # The first child goes on; what was set beside it made the fork.
                forks[tree[node.children[-1]].birth] += 1
    turns = [sum(n.role == "env" for n in t.path(leaf)) for t, leaf in leaves]
    shape = "tree" if forks else "group" if max(groups, default=1) > 1 else "linear"
    return Topology(
        kind=f"{shape}, multi-turn" if any(turns) else shape,
        trees=len(forest),
        leaves=len(leaves),
        group=_spread(groups),
        depth=_spread([len(t.path(leaf)) - 1 for t, leaf in leaves]),
        forks=dict(forks),
        sharing=on_paths / own if own else 1.0,
        branches=float(np.mean([effective_branches(t) for t in forest])) if forest else 0.0,
        turns=_spread(turns),
    )


def _departures(trained: Sequence[tuple[Tree, Node]], leaves: Sequence[tuple[Tree, Node]]) -> Departures:
    count: Counter[str] = Counter()
    gap = 0.0
    seen: set[tuple[str, int]] = set()
    for tree, leaf in trained:
        for node in tree.path(leaf):
            if (tree.id, node.id) in seen or node.parent is None:
                continue
            seen.add((tree.id, node.id))
            gap += _count_node(tree, node, count)
    policy, chosen = max(count["policy"], 1), count["policy"] + count["guided"]
    judged = [n for _, n in leaves if n.status == "done" and "reward" in n.scores]
    return Departures(
        forced=(count["forced"] + count["guided"]) / max(chosen, 1),
        tempered=count["tempered"] / policy,
        tempered_mismatch=gap / max(count["both"], 1),
        unknown_distribution=count["unknown"] / policy,
        foreign=count["foreign"] / policy,
        replayed=count["replayed"] / policy,
        stale=count["stale"] / policy,
        truncated=sum(n.finish in ("length", "budget", "depth") for _, n in trained) / max(len(trained), 1),
        selected=sum(not _taught(n) for n in judged) / max(len(judged), 1),
        masked=count["masked"] / policy,
    )


def _count_node(tree: Tree, node: Node, count: Counter[str]) -> float:
    """Add a node of a trained path to the counts; returns its sum of sampling_logprob − logp."""
    size = len(node)
    if node.role in ("hint", "splice", "template"):
        count["guided"] += size
    if not node.trainable:
        return 0.0
    count["policy"] += size
    count["foreign"] += size * (node.actor != "policy")
    count["replayed"] += size * any(n.birth == "graft" for n in tree.path(node))
    count["masked"] += 0 if node.keep is None else int((~node.keep).sum())
    if node.version is not None:
        count["stale"] += int((node.version < _newest(tree)).sum())
    if node.forced:
        count["forced"] += size
        return 0.0
    if node.sampling_logprob is None:
        count["unknown"] += size
        return 0.0
    known = np.isfinite(node.sampling_logprob)
    count["unknown"] += int((~known).sum())
    if node.logp is None:
        return 0.0
    difference = (node.sampling_logprob - node.logp)[known].astype(np.float64)
    count["both"] += len(difference)
    count["tempered"] += int((np.abs(difference) > 1e-3).sum())
    return float(difference.sum())


def _selection(leaves: Sequence[tuple[Tree, Node]], trained: Sequence[tuple[Tree, Node]]) -> CardSelection:
    def reward(pairs: Sequence[tuple[Tree, Node]]) -> float:
        found = [n.scores.get("outcome", n.scores["reward"]) for _, n in pairs if "reward" in n.scores]
        return float(np.mean(found)) if found else float("nan")

    def length(pairs: Sequence[tuple[Tree, Node]]) -> float:
        return (
            float(np.mean([sum(len(m) for m in t.path(n) if m.trainable) for t, n in pairs])) if pairs else float("nan")
        )

    judged = [(t, n) for t, n in leaves if n.status == "done"]
    return CardSelection(reward(judged), reward(trained), length(judged), length(trained))


def _staleness(tree: Tree) -> np.ndarray:
    newest = _newest(tree)
    found = [newest - n.version for n in tree if n.trainable and n.version is not None]
    return np.concatenate(found) if found else np.zeros(0)


def _newest(tree: Tree) -> int:
    return max((int(n.version.max()) for n in tree if n.version is not None and len(n.version)), default=0)


def _taught(leaf: Node) -> bool:
    """Trained on; in forests of programs that record no fates, every finished leaf with an outcome."""
    return leaf.usage == "trained" or (not leaf.usage and leaf.status == "done" and "reward" in leaf.scores)


def _fate(leaf: Node) -> str:
    return leaf.usage or ("running" if leaf.status in ("open", "paused") else f"{leaf.status}, usage not recorded")


def _spread(values: Sequence[float] | np.ndarray) -> Spread:
    x = np.asarray(values, np.float64)
    if not len(x):
        return Spread(0.0, 0.0, 0.0, 0.0)
    return Spread(float(x.mean()), float(x.min()), float(np.median(x)), float(x.max()))
