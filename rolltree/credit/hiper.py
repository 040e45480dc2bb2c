"""Two time scales: advantages for acting, for choosing a subgoal, and for deciding to switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.episodes import Episodes, episodes
from rolltree.credit.outcome import node_scores, where
from rolltree.credit.registry import register
from rolltree.tree.table import Bools, Floats, Table

SPANS = ("action", "subgoal", "switch")


@register("hiper", paper="HiPER, arXiv:2602.16165", family="hierarchy")
@dataclass(frozen=True, slots=True)
class HiPER:
    """Hierarchical advantage estimation over segments between SWITCH turns (HiPER, arXiv:2602.16165).

    Acting: δ_t = r_t + γ v' − V_low(t), v' = V_low(t+1) inside a segment and V_high of the next boundary at its end;
    A_low = δ_t + γ λ_turn A_low(t+1), reset at segment ends. Subgoal, on boundary turns: δ_k = Σ γ^j r + γ^d
    V_high(next) − V_high(start), A_high = δ_k + γ^d λ_segment A_high(next). Switch: segment return − V_term.
    Each turn's node carries scores `switch` (1 = a new segment; the first turn always is one), `value_low`,
    `value_high`, `value_term` and `notes["spans"]`, name → (from, to) for "action", "subgoal", "switch"; actions
    outside spans get 0. Unbiased with exact values; wrong V_high biases it even at λ = 1, which flat GAE avoids.
    `whiten` does each of the three separately over the turns that have the span, as released. `bootstrap` uses V_low
    where a limit cut.
    """

    needs: ClassVar[frozenset[str]] = frozenset(
        {"reward", "turn:switch", "turn:value_low", "turn:value_high", "turn:value_term", "turn-note:spans"}
    )
    gamma: float = 1.0
    turn_decay: float = 1.0
    """The λ between turns of a segment."""
    segment_decay: float = 0.95
    """The λ between segments."""
    whiten: bool = True
    bootstrap: bool = False
    """Whether a rollout that a limit cut ends with the critic's value instead of nothing."""

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every spanned action."""
        run = episodes(table, "hiper")
        rows = run.row[run.valid]
        names = ("value_low", "value_high", "value_term", "switch")
        low, high, term, switch = (run.fill(node_scores(table, n, rows)) for n in names)
        boundary = run.valid & (switch > 0.5)
        if boundary.shape[1]:
            boundary[:, 0] = run.valid[:, 0]
        advantages = self._recur(run, boundary, (low, high, term), table.cut[run.leaf] & self.bootstrap)
        places = list(zip(*np.nonzero(run.valid), strict=True))
        spans = [_spans(table, int(run.row[place])) for place in places]
        out = np.zeros(table.actions)
        for name, values, may in zip(SPANS, advantages, (run.valid, boundary, run.valid), strict=True):
            use = np.zeros(run.valid.shape, np.bool_)
            use[run.valid] = [name in found for found in spans]
            use &= may
            told = _whiten(values, use) if self.whiten else values
            for place, found in zip(places, spans, strict=True):
                if use[place]:
                    first, stop = (int(table.start[run.row[place]]) + at for at in found[name])
                    out[first:stop] = told[place]
        return Advantage(action=out)

    def _recur(
        self, run: Episodes, boundary: Bools, value: tuple[Floats, Floats, Floats], cut_off: Bools
    ) -> list[Floats]:
        low, high, term = value
        turns = run.valid.shape[1]
        a_low, a_high, segment, carry = (np.zeros((len(run.leaf), turns + 1)) for _ in range(4))
        pad = np.zeros((len(run.leaf), 1))
        high_next, low_next = np.hstack([high, pad])[:, 1:], np.hstack([low, pad])[:, 1:]
        goes_on = np.hstack([run.valid, pad > 0])[:, 1:]
        starts = np.hstack([boundary, pad > 0])[:, 1:]
        for t in range(turns - 1, -1, -1):
            more, new = goes_on[:, t], starts[:, t]
            end = np.where(cut_off, low[:, t], 0.0)
            ahead = np.where(more, np.where(new, high_next[:, t], low_next[:, t]), end)
            inside = more & ~new
            delta = run.reward[:, t] + self.gamma * ahead - low[:, t]
            a_low[:, t] = delta + self.gamma * self.turn_decay * np.where(inside, a_low[:, t + 1], 0.0)
            later = np.where(inside, segment[:, t + 1], np.where(more, high_next[:, t], end))
            segment[:, t] = run.reward[:, t] + self.gamma * later
            carry[:, t] = self.gamma * np.where(inside, carry[:, t + 1], np.where(more, a_high[:, t + 1], 0.0))
            a_high[:, t] = segment[:, t] - high[:, t] + self.segment_decay * carry[:, t]
        a_term = segment[:, :turns] - term
        return [a_low[:, :turns], np.where(boundary, a_high[:, :turns], 0.0), a_term]


def _whiten(values: Floats, use: Bools) -> Floats:
    if use.sum() < 2:
        return values
    return (values - values[use].mean()) / np.sqrt(values[use].var(ddof=1) + 1e-8)


def _spans(table: Table, row: int) -> Mapping[str, tuple[int, int]]:
    spans: Any = table.nodes[row].notes.get("spans")
    if not isinstance(spans, Mapping):
        raise CreditError(f'{where(table, row)} has no notes["spans"]; mark its switch, subgoal and action spans')
    return spans
