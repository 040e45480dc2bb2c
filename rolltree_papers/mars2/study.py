"""MARS²'s tree of two exact policies, held against its controls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.credit.registry import load_credit
from rolltree.tree import Forest, Tree
from rolltree.tree.table import table
from rolltree_papers.mars2 import Attempts, Prior
from studies.lab.claim import Measured
from studies.searches import drafter, grown, mender, solved
from studies.variants import VariantRow, compared


def mars2_arms(seed: int, prompts: int = 150, nodes: int = 8) -> dict[str, Forest]:
    """Forests of the Thompson tree and of its controls, all with the same number of attempts."""
    both = Attempts(nodes)
    wide = replace(both, choose="wide", agents=("policy",))
    alone = replace(both, agents=("policy",))
    return {
        "two agents, Thompson": grown(both, seed, prompts, drafter(), peer=mender()),
        "two agents by chance": grown(replace(both, choose="chance"), seed, prompts, drafter(), peer=mender()),
        "drafter, best of 8": grown(wide, seed, prompts, drafter()),
        "mender, best of 8": grown(wide, seed, prompts, mender()),
        "drafter alone, Thompson": grown(alone, seed, prompts, drafter()),
        "mender alone, Thompson": grown(alone, seed, prompts, mender()),
    }


def mars2(seed: int) -> Measured:
    """The Thompson tree of both against the best control of the method's card: either alone best of 8, or by chance."""
    arms = mars2_arms(seed)
    controls = ("drafter, best of 8", "mender, best of 8", "two agents by chance")
    forest = arms["two agents, Thompson"]
    acted = counted("mars2", forest, Budget())
    return Measured(solved(forest), max(solved(arms[name]) for name in controls), acted=acted)


def generation_by_score(forest: Forest) -> Mapping[int, float]:
    """Share of attempts made at the root after so many attempts: it should fall as better ones stand to build on."""
    wide: defaultdict[int, list[bool]] = defaultdict(list)
    for tree in forest:
        chosen = [event for event in tree.events if event.kind == "select"]
        for turn, event in enumerate(chosen):
            wide[turn].append(event.numbers["depth"] == 0)
    return {turn: float(np.mean(values)) for turn, values in wide.items()}


@cache
def attempt_trees(seed: int, prompts: int, nodes: int, prior: Prior) -> list[Tree]:
    """MARS² trees of a drafting and a mending policy (see `studies.searches`)."""
    both = Attempts(nodes, prior=prior)
    return list(grown(both, seed, prompts, drafter(), peer=mender()))


def preference(tree: Tree, **knobs: Any) -> float:
    """Among attempts of equal score: mean advantage of those that beat their parent minus that of the others."""
    view = table([tree])
    advantage = load_credit("sibling_shaping", **knobs)(view).node
    assert advantage is not None
    better: dict[float, list[float]] = {}
    other: dict[float, list[float]] = {}
    for row, node in enumerate(view.nodes):
        above = [n for n in tree.path(node)[:-1] if "reward" in n.scores]
        if "reward" in node.scores and above:
            side = better if node.scores["reward"] > above[-1].scores["reward"] else other
            side.setdefault(node.scores["reward"], []).append(float(advantage[row]))
    both = better.keys() & other.keys()
    return float(np.mean([np.mean(better[s]) - np.mean(other[s]) for s in both])) if both else np.nan


def variants(items: int, seed: int) -> list[VariantRow]:
    """Shaping on and off, in place and not; the published prior against Beta."""
    trees = attempt_trees(seed, 4 * items, 16, Prior())
    what = "advantage of beating the parent, at equal score"
    none = [preference(tree, gamma=0.0) for tree in trees]
    shaped = [preference(tree) for tree in trees]
    in_place = [preference(tree, in_place=True) for tree in trees]
    rows = [
        compared("mars2", "gamma=0 (parent index lost) → 0.3", what, none, shaped),
        compared("mars2", "in_place=True → False", what, in_place, shaped),
    ]
    for nodes in (8, 16):
        normal, beta = ([solved([t]) for t in attempt_trees(seed, 4 * items, nodes, Prior(kind))]
                        for kind in ("normal", "beta"))  # fmt: skip
        rows.append(compared("mars2", f"prior=normal (mean 0) → beta, {nodes} attempts", "solve rate", normal, beta))
    return rows
