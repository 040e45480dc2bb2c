"""Does a policy that imitates its own right sessions clone the calls that failed in them (KAT-Coder's mask)?

A session is at most three calls of a tool; it is right where one of them works. Whether a call works is the policy's
choice between two, made anew after no, one and two failures. Masks, credit and fold are the recipe's own.
"""

from __future__ import annotations

import numpy as np

from rolltree.credit.fold import fold, leaf_weights
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.lab.claim import Measured

TRIES, STEPS, SESSIONS, RATE, BEGUN = 3, 60, 32, 2.0, -0.5
"""`BEGUN` is the logit of a call that works."""


def trained(seed: int, *, mask: bool) -> tuple[float, float, int]:
    """Chance that the first call fails, that the one after a failure does, and how many calls were masked."""
    rng, parts, masked = np.random.default_rng([39, seed]), load_recipe("kat_coder", mask=mask).build(), 0
    logits = np.full(TRIES, BEGUN)
    for _ in range(STEPS):
        works = 1 / (1 + np.exp(-logits))
        tree, calls = Tree("t", [0]), list[tuple[int, int, bool]]()
        for _ in range(SESSIONS):
            here, right, failures = tree.root, False, 0
            while not right and failures < TRIES:
                right = bool(rng.random() < works[failures])
                here = tree.extend(here, [int(right)], status="done")
                calls.append((here.id, failures, right))
                here = tree.extend(here, [2], role="env", status="done")
                here.notes["failed"] = not right
                failures += not right
            here = tree.extend(here, [3], status="done", finish="stop")
            here.scores["reward"] = float(right)
        for shape in parts.shapers:
            shape(tree, 48)
        rows = table([tree])
        made = parts.credit(rows)
        gain = fold(rows, made, leaf_weights(rows, parts.averaging, counted=made.counted)).gain
        at = {node.id: int(rows.start[i]) for i, node in enumerate(rows.nodes)}
        masked += sum(not right for _, _, right in calls) if mask else 0
        for node, failures, right in calls:
            logits[failures] += RATE * gain[at[node]] * (right - works[failures])
    works = 1 / (1 + np.exp(-logits))
    return float(1 - works[0]), float(1 - works[1]), masked


def kat_coder(seed: int) -> Measured:
    """First calls that fail, with failed calls left out of the loss against imitation of whole right sessions."""
    ours, _, masked = trained(seed, mask=True)
    return Measured(ours, trained(seed, mask=False)[0], acted={"rollout/masked": float(masked)})
