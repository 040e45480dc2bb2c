"""Step and episode terms of a rollout simulated along a logged demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import node_scores, outcomes
from rolltree.credit.registry import register
from rolltree.credit.returns import granted
from rolltree.credit.steps import over_steps, steps
from rolltree.tree.table import Bools, Floats, Ints, Table


def patches(table: Table) -> Bools:
    """Turns that a demonstration took in the place of the policy: nodes with score `patch`."""
    return np.fromiter((n.scores.get("patch", 0.0) > 0.5 for n in table.nodes), np.bool_, len(table.nodes))


@register("semi_online", paper="UI-S1, arXiv:2509.11543", family="step")
@dataclass(frozen=True, slots=True)
class SemiOnline:
    """A = w_e A_episode + w_s A_step; A_step normalises G_t among the same step of the task's rollouts, A_episode the
    step rewards among ALL rows of the task (UI-S1).

    G_t = r_t + γ G_{t+1} where the action matched the demonstration, else r_t: a reward never flows back across a
    patch. Each turn's node has score `match`; r_t is what was granted at the turn. A turn that did not match may be a
    leaf, with the demonstration's turn beside it (score `patch` = 1, which does not train) and the rest of the rollout
    below that. The episode term is over rows, so long rollouts weigh more. At late steps groups shrink; alone, a step
    gets 0. Fold with multiplicity "once": turns before a patch stand above two leaves.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "turn:match"})
    gamma: float = 0.5
    w_episode: float = 1.0
    """Weight of the advantage over whole rollouts."""
    w_step: float = 1.0
    """Weight of the advantage over the same step."""
    std: bool = True
    outcome: bool = False
    """Whether the leaf's outcome counts as reward of its last turn."""
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every turn, on its node."""
        outcomes(table)
        found = steps(table)
        rows, patch = found.row, patches(table)
        match = np.zeros(len(table.nodes))
        match[rows] = node_scores(table, "match", rows)
        is_step = np.zeros(len(table.nodes), np.bool_)
        is_step[rows] = True
        earned, led_to = self._returns(table, is_step, patch, match > 0.5)
        turn = np.rint(table.down((is_step | patch).astype(np.float64))).astype(np.int64)[rows]
        task = table.tree[rows]
        step = self._normalised(led_to[rows], task * (int(turn.max(initial=0)) + 1) + turn)
        episode = self._normalised(earned[rows], task)
        return Advantage(node=over_steps(table, found, self.w_episode * episode + self.w_step * step))

    def _returns(self, table: Table, is_step: Bools, patch: Bools, match: Bools) -> tuple[Floats, Floats]:
        """Per node, what was granted from a turn to the next one, and what the turn led to (the mean over forks)."""
        live = table.below(table.live.astype(np.float64)) > 0
        size = len(table.nodes)
        last = np.where(is_step, np.arange(size), -1)
        for level in table.levels[1:]:
            above = last[table.parent[level]]
            last[level] = np.where(is_step[level] | patch[level], last[level], above)
        got = np.where(live, granted(table, self.outcome), 0.0)
        earned = np.bincount(last[last >= 0], got[last >= 0], minlength=size).astype(np.float64)
        before = np.where(is_step & (table.parent >= 0), last[table.parent], -1)
        led_to, follow = earned.copy(), np.bincount(before[before >= 0], minlength=size)
        for level in table.levels[:0:-1]:
            rows = level[before[level] >= 0]
            onto = before[rows]
            np.add.at(led_to, onto, self.gamma * match[onto] * led_to[rows] / follow[onto])
        return earned, led_to

    def _normalised(self, values: Floats, group: Ints) -> Floats:
        how = "std" if self.std else "none"
        return scaled(centred(values, group, "mean"), values, group, how, ddof=self.ddof, eps=self.eps)
