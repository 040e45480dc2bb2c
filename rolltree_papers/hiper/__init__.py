"""HiPER: hierarchical advantages over segments between subgoals (arXiv 2602.16165)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.outcome import node_scores, where
from rolltree.credit.registry import load_credit, register
from rolltree.credit.steps import granted, steps
from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.strategy import NeedsError, TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.task.grammar import Spans, Spoken
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree
from rolltree.tree.table import Bools, Floats, Ints, Table

# Episodes as rectangles: model calls by (episode, turn), for recursions that run along turns.


@dataclass(frozen=True, slots=True)
class Episodes:
    """One row per live leaf, one column per turn; `row` is -1 after an episode's end."""

    row: Ints
    """(E, T) row of the node of each turn."""
    valid: Bools
    """(E, T)"""
    reward: Floats
    """(E, T) what was granted from this turn to the next: step rewards, and the outcome at the last turn."""
    leaf: Ints
    """(E,) index into `Table.leaf`."""

    def fill(self, per_turn: Floats) -> Floats:
        """Values of the valid turns laid into the rectangle, 0 elsewhere."""
        out = np.zeros(self.valid.shape)
        out[self.valid] = per_turn
        return out


def episodes(table: Table, name: str, *, outcome: bool = True) -> Episodes:
    """The episodes of a forest whose model calls are not shared between leaves; `name` is who asks."""
    found = steps(table)
    mass = table.below(table.live.astype(np.float64))
    if (mass[found.row] > 1).any():
        row = int(found.row[mass[found.row] > 1][0])
        raise CreditError(
            f"{name} needs independent episodes, but {where(table, row)} is shared by several leaves; "
            "fork at the prompt only, or use a tree credit"
        )
    live = np.flatnonzero(table.live)
    at = np.full(len(table.leaf), -1, np.int64)
    at[live] = np.arange(len(live))
    # The live leaf below a call: with one live leaf below, the sum of live indices is its index.
    owner = np.rint(table.below(np.where(table.live, np.arange(len(table.leaf)), 0).astype(np.float64)))
    episode = at[owner[found.row].astype(np.int64)]
    order = np.lexsort((found.row, episode))
    rows, episode = found.row[order], episode[order]
    sizes = np.bincount(episode, minlength=len(live))
    turn = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    shape = (len(live), int(sizes.max(initial=0)))
    row = np.full(shape, -1, np.int64)
    row[episode, turn] = rows
    last = np.full(len(table.nodes), -1, np.int64)
    last[rows] = rows
    for level in table.levels[1:]:
        last[level] = np.where(last[level] < 0, last[table.parent[level]], last[level])
    earned = np.where(mass > 0, granted(table, outcome), 0.0)
    per_row = np.bincount(last[last >= 0], earned[last >= 0], minlength=len(table.nodes))
    return Episodes(row, row >= 0, np.where(row >= 0, per_row[row], 0.0), live)


# Two time scales: advantages for acting, for choosing a subgoal, and for deciding to switch.

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


# Turns in segments between subgoals: as the policy says it in its turns, or where the environment has paid for one.


@dataclass(frozen=True, slots=True)
class SubgoalTurns:
    """Grows as `inner` does and marks each turn: `notes["spans"]`, and score `switch` = 1 where a segment begins; each
    leaf says how many began after the first (`switches`).

    `by="written"` reads spans and switches off the turn, by the task's grammar: a missing switch keeps the subgoal, and
    the first turn always begins a segment (HiPER). With `whole` every token of a turn learns: what stands in the place
    of a torn switch is the decision to keep, and what stands behind the subgoal is the action, also a failed one. That
    is reconstructed: the paper leaves out of the loss what stands in no span, fines it, and stays near a large policy.
    Left out here, torn tags are tokens that nothing pushes down, and the policy drifts into them. `by="paid"` is for
    policies without that grammar: the whole turn is its action, and a segment begins after a step reward.
    """

    inner: TreeStrategy = field(default_factory=Independent)
    by: Literal["written", "paid"] = "written"
    switch: str = "S"
    """What a turn's switch span says where it switches."""
    whole: bool = True
    """Whether tokens in no span of the grammar learn with the span whose place they take."""
    writes: frozenset[str] = frozenset({"turn:switch", "turn-note:spans"})

    @property
    def needs(self) -> frozenset[str]:
        """The inner strategy's, and an environment that answers."""
        return self.inner.needs | {"turns"}

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse tasks whose turns have no spans to read."""
        if self.by == "written" and not (isinstance(task, Spoken) and any(t.level for t in task.grammar.tags)):
            raise NeedsError(
                f"subgoals are read off the turns, but turns of {task.name!r} have no spans for them; choose a task "
                "with a grammar, such as 'spoken:grid', or subgoals that the environment pays for (by='paid')"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, then mark."""
        await self.inner.grow_tree(tree, hand)
        count = dict.fromkeys(("turns", "switches", "torn"), 0)
        for node in tree:
            if node.trainable and len(node):
                count["torn"] += self._mark(tree, node, hand)
                count["turns"] += 1
                count["switches"] += int(node.scores["switch"])
        for leaf in tree.leaves():
            begun = sum(n.scores.get("switch", 0.0) for n in tree.path(leaf))
            leaf.scores["switches"] = max(begun - 1.0, 0.0)
        hand.event("note", None, "turns in segments", **count)

    def _mark(self, tree: Tree, node: Node, hand: Hand) -> bool:
        """Mark a turn; whether it lacks a switch or an action."""
        before = None if node.parent is None else tree[node.parent]
        first = before is None or before.parent is None
        torn = False
        if self.by == "paid":
            begins = first or (before is not None and before.scores.get("step_reward", 0.0) > 0)
            node.notes["spans"] = {"action": (0, len(node))}
        else:
            assert isinstance(hand.task, Spoken)
            begins = first or hand.task.grammar.inside(hand.codec.decode(node.actions), "switch") == self.switch
            spans = hand.task.grammar.tokens(hand.codec, node.actions)
            torn = not spans.keys() >= {"switch", "action"}
            node.notes["spans"] = whole_turn(spans, len(node)) if self.whole else spans
        node.scores["switch"] = float(begins)
        return torn


def whole_turn(spans: Spans, length: int) -> Spans:
    """Switch, subgoal and action that make up the whole turn, each from where the one before it ends."""
    acts = spans["action"][0] if "action" in spans else length
    told = {name: spans[name] for name in ("switch", "subgoal") if name in spans and spans[name][0] < acts}
    if "switch" in told and "subgoal" in told and told["subgoal"] < told["switch"]:
        del told["subgoal"]  # said before its switch, where it is none
    first = min((span[0] for span in told.values()), default=acts if "action" in spans else 0)
    chosen = told["switch"][1] if "switch" in told else first
    named = told["subgoal"][1] if "subgoal" in told else chosen
    whole = {"switch": (0, chosen), "subgoal": (chosen, named), "action": (named, length)}
    return {name: (start, stop) for name, (start, stop) in whole.items() if start < stop}


@dataclass(frozen=True, slots=True)
class Hiper:
    """Within a segment advantages run on undiscounted; at its end the critic's value of the next one takes over.

    The policy writes when it switches and to which subgoal (`spoken:grid`), and switch, subgoal and action have
    advantages of their own; V_low is read where the action's span begins, V_high and V_term where the turn does. Each
    tree says how many of its turns switched and how many lacked a switch or an action; torn turns learn whole
    (`whole=False` leaves them out of the loss as the paper does; then they took over, and nothing was right any more).
    The evidence starts from a policy
    that has imitated such play (`spoken`). For one that does not speak so, `subgoals="paid"` begins a segment where the
    environment pays for a subgoal, and the action's advantage is what is left of the method. The baseline is flat PPO
    with the same critic at λ = 1, the comparison in which its theorem promises less variance, and no bias only while
    the critic is right. One head stands for three; penalties for keeping a subgoal, and the penalty of 0.1 for an
    invalid action, are left out.
    """

    card: ClassVar[Card] = Card(
        "hiper", "Hierarchical advantage estimation", "2602.16165", 2026,
        "97.4 on ALFWorld and 83.3 on WebShop (Qwen2.5-7B), 6.6 and 8.3 above the best before", ("credit", "generate"),
        "ppo",
        Evidence("pass@1", "ppo", least=0.04, task="regime:spoken", seeds=6, settings=("ppo:decay=1.0",)),
        needs=(Need.turns(2), Need.part("switches")), counter=Counter("reward/part/switches"),
    )  # fmt: skip
    group: int = 8
    subgoals: Literal["written", "paid"] = "written"
    """Who says where a segment begins: the policy's turns, or the environment's step rewards."""
    whole: bool = True
    """Whether tokens in no span learn too, with the span whose place they take; reconstructed."""
    gamma: float = 1.0
    turn_decay: float = 1.0
    """λ within a segment."""
    segment_decay: float = 0.95
    """λ from a segment to the next one."""
    whiten: bool = True
    """Each kind of advantage over the step."""
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the starting policy; 0.01 in the paper."""

    def build(self) -> Parts:
        """Independent episodes in segments, hierarchical advantages under the trainer's critic, clipped surrogate."""
        if self.group < 1:
            raise RecipeError(f"hiper: group={self.group} samples nothing; give at least 1")
        credit = load_credit(
            "hiper", gamma=self.gamma, turn_decay=self.turn_decay, segment_decay=self.segment_decay, whiten=self.whiten
        )
        return Parts(
            "hiper", SubgoalTurns(Independent(self.group), self.subgoals, whole=self.whole), credit,
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
        )  # fmt: skip
