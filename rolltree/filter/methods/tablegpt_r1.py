"""The parts of TableGPT-R1's reward (arXiv 2512.20312)."""

from __future__ import annotations

from rolltree.filter.rewards import RewardPart, Rewards

TABLES = Rewards(
    (
        RewardPart("rules"),
        RewardPart("criteria"),
        RewardPart("steps"),
        RewardPart("fresh", 0.1),
        RewardPart("calm", 0.1),
        RewardPart("no_plot", 0.1),
    )
)
"""Its routes, of which an item has one (agentic items rules and steps), and its regularisers; those weights are not
published (0.1 each is reconstructed)."""
