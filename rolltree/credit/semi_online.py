"""Step and episode terms of a rollout simulated along a logged demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage
from rolltree.credit.centre import centred
from rolltree.credit.episodes import episodes
from rolltree.credit.outcome import node_scores, outcomes
from rolltree.credit.registry import register
from rolltree.credit.scale import scaled
from rolltree.credit.steps import Steps, over_steps
from rolltree.tree.table import Floats, Ints, Table


@register("semi_online", paper="UI-S1, arXiv:2509.11543", family="step")
@dataclass(frozen=True, slots=True)
class SemiOnline:
    """A = w_e A_episode + w_s A_step; A_step normalises G_t among the same step of the task's rollouts, A_episode the
    step rewards among ALL rows of the task (UI-S1).

    G_t = r_t + γ G_{t+1} where the action matched the demonstration, else r_t: a reward never flows back across a
    patch. Each turn's node has score `match`; r_t is what was granted at the turn. The episode term is over rows, so
    long rollouts weigh more. At late steps groups shrink; alone, a step gets 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "turn:match"})
    gamma: float = 0.5
    w_episode: float = 1.0
    w_step: float = 1.0
    std: bool = True
    outcome: bool = False
    """Whether the leaf's outcome counts as reward of its last turn."""
    ddof: int = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every turn, on its node."""
        outcomes(table)
        run = episodes(table, "semi_online", outcome=self.outcome)
        rows = run.row[run.valid]
        match = run.fill(node_scores(table, "match", rows)) > 0.5
        led_to = np.zeros((len(run.leaf), run.valid.shape[1] + 1))
        for t in range(run.valid.shape[1] - 1, -1, -1):
            led_to[:, t] = run.reward[:, t] + self.gamma * np.where(match[:, t], led_to[:, t + 1], 0.0)
        turn = np.broadcast_to(np.arange(run.valid.shape[1]), run.valid.shape)[run.valid]
        task = table.tree[rows]
        step = self._normalised(led_to[:, :-1][run.valid], task * (int(turn.max(initial=0)) + 1) + turn)
        episode = self._normalised(run.reward[run.valid], task)
        return Advantage(node=over_steps(table, Steps(rows, rows), self.w_episode * episode + self.w_step * step))

    def _normalised(self, values: Floats, group: Ints) -> Floats:
        how = "std" if self.std else "none"
        return scaled(centred(values, group, "mean"), values, group, how, ddof=self.ddof, eps=self.eps)
