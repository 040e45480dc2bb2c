"""Noise of one sampled rollout against a greedy one, and of two sampled ones against each other."""

from __future__ import annotations

from studies.exact.checks import noise, noise_of, sampled
from studies.lab.claim import Measured


def remax(seed: int) -> Measured:
    """Noise of one sampled rollout against a greedy one, and of two sampled ones against each other.

    On the tree, where the greedy way earns; on the chain of tool calls it never does, and nothing is taken off.
    """
    forest = sampled(1, "flat", seed, "tree")
    earned = sum(tree.root.scores["greedy_reward"] != 0 for tree in forest)
    plain = noise("rloo", 2, "flat", seed, "tree")[0]
    return Measured(noise_of("remax", forest, "tree"), plain, acted={"greedy rollouts that earned": float(earned)})
