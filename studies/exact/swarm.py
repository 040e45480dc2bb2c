"""Nodes that train on one another's groups: tabular policies over sparse tasks, each good at others (SAPO's swarm).

Foreign actions are scored under the node's own policy and judged by its own verifier; the ratio is one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rolltree.lab.claim import Measured

NODES, TASKS, ANSWERS, GROUP, PER_ROUND, ROUNDS, RATE = 4, 8, 40, 8, 8, 60, 4.0
HEAD_START = 3.0
"""Logits by which a node knows the answers of its own two tasks."""


def run(seed: int, foreign: int, *, liar: bool = False, trusts: bool = False) -> tuple[float, NDArray[np.float64], int]:
    """Mean reward of own rollouts over the run, each round's, and foreign groups that taught; of `PER_ROUND` groups so
    many are foreign.

    A `liar` among the nodes publishes groups with the rewards turned round; nodes that `trust` believe them.
    """
    rng = np.random.default_rng([32, seed])
    z = np.zeros((NODES, TASKS, ANSWERS))
    for node in range(NODES):
        z[node, [2 * node, 2 * node + 1], 0] += HEAD_START
    seen, taught = np.zeros(ROUNDS), 0
    for at in range(ROUNDS):
        published: list[list[tuple[int, NDArray[np.int64], NDArray[np.float64]]]] = []
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        for node in range(NODES):
            mine: list[tuple[int, NDArray[np.int64], NDArray[np.float64]]] = []
            for task in rng.integers(TASKS, size=PER_ROUND):
                said = rng.choice(ANSWERS, size=GROUP, p=p[node, task])
                right = (said == 0).astype(float)
                seen[at] += right.mean() / (NODES * PER_ROUND)
                mine.append((int(task), said, 1 - right if liar and node == 0 else right))
            published.append(mine)
        for node in range(NODES):
            others = [g for n in range(NODES) if n != node for g in published[n] if 0 < g[2].mean() < 1]
            own = [(t, s, (s == 0).astype(float)) for t, s, _ in published[node][: PER_ROUND - foreign]]
            chosen = [others[i] for i in rng.permutation(len(others))[:foreign]]
            if not trusts:
                chosen = [(t, s, (s == 0).astype(float)) for t, s, _ in chosen]
            taught += sum(bool(reward.std()) for _, _, reward in chosen)
            for task, said, reward in [*own, *chosen]:
                advantage = reward - reward.mean()
                scale = reward.std()
                if scale:
                    push = np.bincount(said, advantage / scale, ANSWERS)
                    z[node, task] += RATE / PER_ROUND * (push - p[node, task] * push.sum()) / GROUP
    return float(seen.mean()), seen, taught


def swarm(seed: int) -> Measured:
    """Four own and four foreign groups against eight own, at equal updates."""
    value, _, taught = run(seed, 4)
    return Measured(value, run(seed, 0)[0], acted={"foreign groups that taught": float(taught)})
