"""Generalised advantage estimation with a critic, over actions or over turns of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.entropy_shaping import standardised
from rolltree.credit.normalise import Ddof
from rolltree.credit.outcome import action_values
from rolltree.credit.registry import register
from rolltree.credit.steps import granted
from rolltree.tree.table import Floats, Ints, Table

CutValue = Literal["zero", "critic", "pessimist"]
"""What comes behind a rollout that a limit cut: nothing, what the critic said of the last state it read, or that where
it is negative and nothing elsewhere."""


def recursion(
    table: Table, value: Floats, earned: Floats, decay: float, gamma: float, behind: Floats | None = None
) -> Floats:  # fmt: skip
    """A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V(t+1) − V(t) over trained actions, leaves up.

    Where a path forks, what comes next is the mean over live leaves below. A reward granted at a node counts as
    earned by the last trained action at or before it. `behind` is the value that follows each leaf; None = 0.
    """
    mass = table.below(table.live.astype(np.float64))
    ahead_v, ahead_a = np.zeros(len(table.nodes)), np.zeros(len(table.nodes))
    if behind is not None:
        ahead_v[table.leaf] = np.where(table.live, behind, 0.0)
    # Undiscounted reward that falls between the last action so far and the next one below.
    pending = np.where(mass > 0, earned, 0.0)
    out = np.zeros(table.actions)
    for level in table.levels[::-1]:
        rows = level[mass[level] > 0]
        _within(table, rows, (value, pending, ahead_v, ahead_a), out, decay, gamma)
        inner = rows[table.parent[rows] >= 0]
        above, share = table.parent[inner], mass[inner] / mass[table.parent[inner]]
        for carried in (ahead_v, ahead_a, pending):
            np.add.at(carried, above, share * carried[inner])
    return out


def _within(
    table: Table, rows: Ints, state: tuple[Floats, Floats, Floats, Floats], out: Floats, decay: float, gamma: float
) -> None:
    value, pending, ahead_v, ahead_a = state
    for back in range(int(table.length[rows].max(initial=0))):
        rows = rows[table.length[rows] > back]
        at = table.start[rows] + table.length[rows] - 1 - back
        loss_mask = table.loss_mask[at]
        here, at = rows[loss_mask], at[loss_mask]
        delta = pending[here] + gamma * ahead_v[here] - value[at]
        out[at] = delta + gamma * decay * ahead_a[here]
        ahead_v[here], ahead_a[here], pending[here] = value[at], out[at], 0.0


def last_values(table: Table, value: Floats) -> Floats:
    """Per leaf, the value before the last trained action on its path; 0 where there is none."""
    last = np.full(len(table.nodes), -1, np.int64)
    trained = np.flatnonzero(table.loss_mask)
    np.maximum.at(last, np.repeat(np.arange(len(table.nodes)), table.length)[trained], trained)
    for level in table.levels[1:]:
        last[level] = np.where(last[level] < 0, last[table.parent[level]], last[level])
    at = last[table.leaf]
    return np.where(at >= 0, value[at], 0.0) if len(value) else np.zeros(len(table.leaf))


@register("gae", paper="GAE, arXiv:1506.02438", family="baseline")
@dataclass(frozen=True, slots=True)
class GAE:
    """A_t = Σ (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} − V_t over the trained actions of a path (GAE, eq. 16).

    V_t, the value of the state before action t, stands in `notes["value"]` per action. With λ = 1 the estimate is
    unbiased whatever the critic says; with λ < 1 it trades that for variance. Environment and prompt actions take no
    time. On trees the future is averaged over the live leaves below. Behind the last action there is nothing, also
    where a limit of tokens or turns cut the rollout, as in verl; `cut` says otherwise. No value is read behind the last
    action, so the critic's is that of the state before it, and with γ = 1 a cut costs nothing. The trainer's critic
    learns what was granted in any case.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "action:value"})
    gamma: float = 1.0
    decay: float = 0.95
    """The λ of the estimate: 1 is unbiased whatever the critic says, less has a smaller variance."""
    whiten: bool = False
    """z-scores over the step's actions."""
    ddof: Ddof = 1
    """Of their deviation: 1 for a sample's, as verl takes, 0 for a whole population's."""
    cut: CutValue = "zero"
    """What comes behind a rollout that a limit cut: "zero", the "critic"'s last value, or of that what is negative
    ("pessimist")."""

    def __post_init__(self) -> None:
        if not (0 <= self.gamma <= 1 and 0 <= self.decay <= 1):
            raise CreditError(f"gae: gamma {self.gamma} and decay {self.decay} must lie in [0, 1]")
        if self.cut not in get_args(CutValue):
            raise CreditError(f"gae: cut={self.cut!r} is unknown; choose {', '.join(get_args(CutValue))}")

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every action."""
        value = action_values(table, "value")
        behind = None if self.cut == "zero" else np.where(table.cut, last_values(table, value), 0.0)
        if behind is not None and self.cut == "pessimist":
            behind = np.minimum(behind, 0.0)
        found = recursion(table, value, granted(table), self.decay, self.gamma, behind)
        return Advantage(action=standardised(table, found, self.ddof) if self.whiten else found)
