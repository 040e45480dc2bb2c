"""An episode advantage plus a step advantage among visits of the same state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Singleton, centred, scaled
from rolltree.credit.registry import register
from rolltree.credit.steps import check_discount, granted, over_steps, require_states, state_ids, steps, to_go
from rolltree.tree.table import Floats, Table

Unit = Literal["trajectories", "rows"]
"""Whether an episode counts once or once per step in the episode statistics."""


def episode_advantage(
    table: Table, by: partition.By, *, unit: Unit, std: bool, singleton: Singleton, step_rewards: bool = True
) -> Floats:  # fmt: skip
    """Total reward of each episode (outcome and, unless left out, step rewards) against its group, per leaf."""
    episode = table.down(granted(table, steps=step_rewards))[table.leaf]
    group = partition.leaf_groups(table, by)
    weights = None
    if unit == "rows":
        found = steps(table)
        per_node = np.bincount(found.row, minlength=len(table.nodes)).astype(np.float64)
        weights = table.down(per_node)[table.leaf]
    middle = centred(episode, group, "mean", singleton, weights)
    return scaled(middle, episode, group, "std" if std else "none", ddof=1, eps=1e-6, weights=weights)


@register("gigpo", paper="GiGPO, arXiv:2505.10978", family="step")
@dataclass(frozen=True, slots=True)
class GiGPO:
    """A = A_episode + ω A_step; A_step = (G_t − mean)[/std] among the steps of a group that answered the same state.

    G_t = Σ γ^(u−t) r_u over step rewards and the outcome (GiGPO, arXiv:2505.10978, eq. 5 to 8). A state seen once
    gives 0. `std` divides both terms (ddof 1, eps 1e-6). Released code takes the episode statistics over rows, so
    long episodes weigh more, and leaves the raw return to a group of one: `unit="rows"`, `singleton="raw"`. Needs
    state keys without history or step counters; where no state repeats it is the group mean exactly.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "state_key"})
    omega: float = 1.0
    """Weight of the step term; 0 leaves the episode term alone."""
    gamma: float = 0.95
    std: bool = False
    by: partition.By = "tree"
    unit: Unit = "trajectories"
    """Whether episode statistics are over trajectories, or over rows, where long episodes weigh more."""
    singleton: Singleton = "zero"
    step_rewards: bool = True
    """Whether rewards on the way count; without, the outcome alone does."""

    def __post_init__(self) -> None:
        check_discount(self.gamma)

    def __call__(self, table: Table) -> Advantage:
        """The episode term per leaf, the step term per node."""
        leaf = episode_advantage(
            table, self.by, unit=self.unit, std=self.std, singleton=self.singleton, step_rewards=self.step_rewards
        )  # fmt: skip
        found = steps(table)
        require_states(table, found)
        if self.omega == 0:
            return Advantage(leaf=leaf)
        led_to = to_go(table, granted(table, steps=self.step_rewards), self.gamma)[found.row]
        group = state_ids(table, self.by)[found.state]
        middle = scaled(centred(led_to, group, "mean"), led_to, group, "std" if self.std else "none")
        return Advantage(leaf=leaf, node=over_steps(table, found, self.omega * middle))
