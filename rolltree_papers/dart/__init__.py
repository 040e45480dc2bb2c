"""DART: curated rollouts of GUI agents (arXiv 2509.23866)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.control.order import ControlError, Delivery, Order, Prompt, Written
from rolltree.control.plan import Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.errors import RolltreeError
from rolltree.filter.groups import Mixed, live_leaves
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Node, Tree
from rolltree.tree.store.values import storable
from rolltree.tree.views import policy_turns

# Fewer rollouts of what is solved, shorter horizons, and a past success where all fail (DART).

RESCUE = "rescue"
"""Arm of the successes that come from before."""


@storable
@dataclass(slots=True)
class DartState:
    """The newest success of each prompt, and the most environment steps that one took."""

    newest: dict[str, Written] = field(default_factory=dict[str, Written])
    longest: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Dart:
    """Widths and horizons by what was seen of a prompt; a group of failures gets the newest success in its oldest's
    place.

    A prompt solved at a rate p of at least `threshold` gets (n + 1)/p − (n − 1) rollouts, which for n = 8 is 9/p − 7: 8
    at 0.6, 2 at 1. A success is given turn by turn with the log-probs it was sampled with, so a correction can weigh
    it; its environment is played again and its outcome judged again.
    """

    name: ClassVar[str] = "dart"
    paper: ClassVar[str] = "2509.23866"
    needs: ClassVar[frozenset[str]] = frozenset()
    threshold: float = 0.6
    """Pass rate from which on a prompt gets fewer rollouts; 1.0 in the released configuration."""
    least: int = 1
    """Fewest rollouts of a prompt."""
    shorten: bool = True
    """Whether a prompt's horizon is that of its longest success; which margin the paper leaves is not known."""
    most: int = 4096
    """Prompts that are remembered."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or self.least < 1:
            raise ControlError(
                f"dart: threshold={self.threshold} must be a share above 0, and least={self.least} 1 or more"
            )

    def start(self) -> DartState:
        """Nothing solved yet."""
        return DartState()

    def width(self, rate: float | None, usual: int) -> int:
        """Rollouts of a prompt with this pass rate; None = it was never seen."""
        if rate is None or rate < self.threshold:
            return usual
        return min(usual, max(self.least, int((usual + 1) / rate - (usual - 1) + 1e-9)))

    def plan(self, step: Step, state: DartState) -> Plan:
        """A round, and the rescue of groups in which all fail."""
        delivered = yield [self._order(step, prompt, state) for prompt in step.take()]
        dead = [d for d in delivered if d.n and max(d.rewards) <= 0 and d.order.prompt.uid in state.newest]
        self._learn(delivered, state)
        if dead:
            yield [
                Order(d.order.prompt, arm=RESCUE, given=(state.newest[d.order.prompt.uid],), replaces=1, last=True,
                      why=f"none of {d.n} solved: its newest success takes the oldest failure's place")
                for d in dead
            ]  # fmt: skip

    def _order(self, step: Step, prompt: Prompt, state: DartState) -> Order:
        rate = step.history.rate(prompt.uid)
        turns = state.longest.get(prompt.uid) if self.shorten else None
        return Order(prompt, self.width(rate, step.width), turns=turns or None, texts=True)

    def _learn(self, delivered: Sequence[Delivery], state: DartState) -> None:
        for d in delivered:
            uid = d.order.prompt.uid
            won = [i for i, reward in enumerate(d.rewards) if reward > 0 and d.written[i] is not None]
            if not won:
                continue
            newest = d.written[won[-1]]
            assert newest is not None
            state.newest.pop(uid, None)
            state.newest[uid] = newest
            state.longest[uid] = max(state.longest.get(uid, 0), *(d.turns[i] for i in won))
            while len(state.newest) > self.most:
                gone = next(iter(state.newest))
                del state.newest[gone], state.longest[gone]


# Which turns of a group are trained on, by how uncertain the policy was in them.


@dataclass(frozen=True, slots=True)
class UncertainTurns:
    """Keeps the turns whose mean entropy is at or above the group's quantile `1 − share`; the others stay as context.

    A turn is what the policy says between two words of the environment. Turns whose entropies were not recorded are an
    error: they must not look like certain ones. Idempotent (DART, arXiv 2509.23866).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})
    share: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise RolltreeError(f"turns of a share={self.share} cannot be kept; give a share above 0, at most 1")

    def __call__(self, tree: Tree, limit: int) -> None:
        """Mask the certain turns of live leaves; `limit` is not used."""
        turns: dict[int, list[Node]] = {}
        for leaf in live_leaves(tree):
            for turn in policy_turns(tree.path(leaf)):
                if written := [node for node in turn if len(node)]:
                    turns[written[0].id] = written
        if not turns:
            return
        doubt = {first: _entropy(tree, turn) for first, turn in turns.items()}
        known = [value for value in doubt.values() if np.isfinite(value)]
        if not known:
            return
        least = float(np.quantile(known, 1 - self.share))
        for first, turn in turns.items():
            if doubt[first] < least:
                for node in turn:
                    node.keep = np.zeros(len(node), np.bool_)


def _entropy(tree: Tree, turn: list[Node]) -> float:
    known = [node.entropy for node in turn if node.entropy is not None]
    values = np.concatenate(known) if known else np.zeros(0)
    values = values[np.isfinite(values)]
    if not len(values):
        if all(node.forced for node in turn):
            return float("inf")  # nobody sampled it: what was written elsewhere stays whole
        raise RolltreeError(
            f"turn {turn[0].id} of tree {tree.id!r} has no entropies to choose by; let the strategy ask for 'entropy'"
        )
    return float(values.mean())


@dataclass(frozen=True, slots=True)
class DartRecipe:
    """GRPO with widths and horizons by what was seen of each prompt, rescue by past successes, and its uncertain turns.

    Rescued rollouts are not the policy's of today: the weight π/π_sampled, at most 1, holds for them as for all others,
    yet they enter the group's mean, as published. Repeated prompts are what it is about: train with `--items N` or on
    data. The system around it (environments that free themselves one by one, engines that reload in turn, the two
    newest versions) is `--scheduler dart`. Left out: a pool of successes collected before, the dual clip at 10 of the
    released trainer, and its ratios by step. Also left out: that a prompt is trained on only with 8 rollouts of the two
    newest versions, and that prompts never tried come first. The released trainer leaves the choice of turns out
    (`turns=1`) and divides the learning rate; evidence is the control alone, on simulated prompts.
    """

    card: ClassVar[Card] = Card(
        "dart", "Curated rollouts for GUI agents", "2509.23866", 2025,
        "42.13 % on OSWorld (7B), 14.6 points over its base; 0 to 46 % on 22 tasks that failed 32 times in a row",
        ("control", "filter", "objective"), "dapo",
        Evidence("pass rate of the hardest quarter at equal rollouts", "the same width everywhere and no rescue",
                 "higher", 0.02, seeds=5, check="rolltree_papers.dart.study:dart"),
        needs=(Need.revisits,), counter=Counter("budget/arm/rescue"),
    )  # fmt: skip
    group: int = 8
    threshold: float = 0.6
    """Pass rate from which on a prompt gets fewer rollouts."""
    turns: float = 0.8
    """Share of a group's turns that is trained on: the most uncertain."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.1
    high: float = 1.0
    """Largest ratio of trainer to sampler that multiplies an action's credit."""

    def build(self) -> Parts:
        """Widths, horizons and rescues by prompt, mixed groups, uncertain turns, truncated weights, KL."""
        from rolltree.objective.correction import ImportanceWeight

        check_group("dart", self.group)
        chosen = self.turns < 1
        return Parts(
            "dart", Independent(self.group, want=frozenset({"entropy"} if chosen else ())), load_credit("grpo"),
            load_objective(
                "clipped", clip_low=self.clip_low, clip_high=self.clip_high, kl=self.kl,
                correction=ImportanceWeight("token", "truncate", high=self.high),
            ),
            averaging="token", filters=(Mixed(),), control=Dart(self.threshold),
            shapers=(UncertainTurns(self.turns),) if chosen else (),
        )  # fmt: skip
