"""SCALER: environments whose difficulty follows the policy (arXiv 2601.04809)."""

from __future__ import annotations

import collections
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.task.items import ENVIRONMENT
from rolltree.task.protocol import Item
from rolltree.tree.store.values import storable

# A fixed number of environments that supply a step's prompts, and when one of them makes room for another (SCALER).

EDGE = 1e-9


@storable
@dataclass(slots=True)
class Environment:
    """A generator of instances whose difficulty follows the policy (arXiv 2601.04809)."""

    levels: list[int] = field(default_factory=list[int])
    """Levels seen of it, in order."""
    level: float = 0.0
    """Where it stands, between two of them or on one."""
    visits: int = 0
    rates: list[float] = field(default_factory=list[float])
    """Its accuracies since it became active, oldest first."""
    steps: list[float] = field(default_factory=list[float])
    """Where it stood after each of these visits."""

    def know(self, level: int) -> None:
        """Another level that there is. An environment begins at its lowest."""
        if level not in self.levels:
            self.levels = sorted([*self.levels, level])
            self.level = self._inside(self.level) if self.visits else float(self.levels[0])

    def forget(self, level: int) -> None:
        """A level that there is no more."""
        self.levels = [known for known in self.levels if known != level]
        if self.levels:
            self.level = self._inside(self.level)

    def around(self) -> tuple[int, int, float]:
        """The known levels below and above where it stands, and how far it is from the lower to the upper."""
        low = max((known for known in self.levels if known <= self.level + EDGE), default=self.levels[0])
        high = min((known for known in self.levels if known > low), default=low)
        return low, high, (self.level - low) / (high - low) if high > low else 0.0

    def split(self, count: int, rng: np.random.Generator) -> dict[int, int]:
        """Instances per level: the upper one for the fraction of the way to it, the rest by chance."""
        low, high, share = self.around()
        exact = count * share
        above = int(exact + EDGE)
        above += int(above < count and rng.random() < exact - above)
        return {level: n for level, n in ((low, count - above), (high, above)) if n}

    def accuracy(self, rates: dict[int, float]) -> float:
        """Accuracy where it stands, between those of the levels beside it; one alone speaks for both."""
        weight = {level: max(1 - abs(self.level - level) / self._gap(), EDGE) for level in rates}
        return sum(weight[level] * rate for level, rate in rates.items()) / sum(weight.values())

    def move(self, rate: float, gain: float, target: float, most: float) -> None:
        """One step of the proportional controller, within the levels there are."""
        self.level = self._inside(self.level + min(max(gain * (rate - target), -most), most))
        self.visits += 1
        self.rates.append(rate)
        self.steps.append(self.level)

    def leave(self) -> None:
        """Make room for another: the history is cleared, the level stays."""
        self.rates, self.steps = [], []

    def _inside(self, level: float) -> float:
        return float(min(max(level, self.levels[0]), self.levels[-1]))

    def _gap(self) -> float:
        low, high, _ = self.around()
        return max(high - low, 1)


def finished(env: Environment, patience: int, window: int, slope: float | None) -> str:
    """Why an environment should make room; "" while it should stay.

    It never succeeds, it stands at its highest level, or it no longer rises: the slope of a line through where it stood
    over the last `window` visits is at most `slope` (None = it may rest on a plateau).
    """
    last = env.rates[-patience:]
    if len(last) == patience and max(last) <= 0:
        return f"nothing solved in {patience} visits"
    if len(last) == patience and min(env.steps[-patience:]) >= env.levels[-1]:
        return f"at its highest level for {patience} visits"
    if slope is not None and len(env.steps) >= window:
        found = float(np.polyfit(np.arange(window), env.steps[-window:], 1)[0])
        if found <= slope + EDGE:
            return f"its level no longer rises ({found:+.3f} a visit)"
    return ""


# Instances made to order: each environment's difficulty follows the policy, and few are active at a time (SCALER).

PATIENCE = 64
"""A level not met among this many items per kind asked of the stream, and none of the others, is taken to be gone."""


@storable
@dataclass(slots=True)
class ScalerState:
    """All environments by name, and which are active."""

    known: dict[str, Environment] = field(default_factory=dict[str, Environment])
    active: list[str] = field(default_factory=list[str])
    retired: int = 0
    """How often one has made room."""

    def see(self, items: Sequence[Item]) -> None:
        """Take note of environments and levels."""
        for item in items:
            self.known.setdefault(kind_of(item)[0], Environment()).know(item.level)


@dataclass(frozen=True, slots=True)
class Scaler:
    """Prompts of the active environments at the level where the policy is right `target` of the time.

    An environment stands at a continuous level d; a visit asks for instances of the two levels around it and moves it
    by clip(gain·(accuracy − target), ±most). Environments that are hopeless, exhausted or at rest make room for others
    drawn from those that are not active, and keep their d. Which environments and levels there are is read from the
    stream, whose items of other kinds are passed over. Each begins at its lowest level (reconstructed).
    """

    name: ClassVar[str] = "scaler"
    paper: ClassVar[str] = "2601.04809"
    needs: ClassVar[frozenset[str]] = frozenset()
    active: int = 0
    """Environments that supply prompts (64 in the paper, of 2,739); each step has as many of each, or visits as many as
    it has prompts. 0 = half of those there are, so that whoever makes room has somebody to take its place."""
    target: float = 0.5
    """Share of right answers at which an environment keeps its level."""
    gain: float = 2.0
    """How far the level moves for each point away from the target."""
    most: float = 1.0
    """Largest move in a step, in levels."""
    patience: int = 5
    """Visits in a row without success, or at the highest level, after which an environment makes room."""
    window: int = 10
    """Visits over which an environment's progress is measured."""
    slope: float | None = 0.0
    """Progress per visit at or below which it makes room; None = one that rests at the target stays, as it should
    where the policy's skill has."""
    survey: int = 256
    """Items of the stream looked at before the first step to learn which levels there are."""

    def __post_init__(self) -> None:
        for knob, least in (("active", 0), ("patience", 1), ("survey", 1)):
            if getattr(self, knob) < least:
                raise ControlError(f"scaler: {knob}={getattr(self, knob)} makes no sense; give at least {least}")
        if self.window < 2:
            raise ControlError(f"scaler: window={self.window} has no slope; give at least 2")
        if not 0 < self.target < 1 or self.gain <= 0 or self.most <= 0:
            raise ControlError(
                f"scaler: target={self.target} must lie between 0 and 1, and gain={self.gain} and most={self.most} "
                "above 0"
            )

    def start(self) -> ScalerState:
        """Nothing is known."""
        return ScalerState()

    def plan(self, step: Step, state: ScalerState) -> Plan:
        """One round, then every visited environment moves."""
        if not state.known:
            state.see(step.supply.at(range(step.supply.taken, step.supply.taken + self.survey)))
        self._fill(step, state)
        visited = [state.active[i] for i in step.rng.permutation(len(state.active))][: step.prompts]
        share, rest = divmod(step.prompts, len(visited))
        wanted: collections.Counter[tuple[str, int]] = collections.Counter()
        for i, name in enumerate(visited):
            split = state.known[name].split(share + (i < rest), step.rng)
            wanted.update({(name, level): n for level, n in split.items()})
        items = made_to_order(step, state, wanted)
        delivered = yield [Order(p, why=_why(p.item, state), last=True) for p in step.prompts_of(items)]
        self._learn(state, delivered)

    def _fill(self, step: Step, state: ScalerState) -> None:
        """Let new ones in where there is room, by chance."""
        state.active = [name for name in state.active if state.known[name].levels]
        others = [name for name, env in state.known.items() if name not in state.active and env.levels]
        places = self.active or max(1, len(state.active + others) // 2)
        room = min(places - len(state.active), len(others))
        if room > 0:
            state.active += [others[i] for i in step.rng.permutation(len(others))[:room]]

    def _learn(self, state: ScalerState, delivered: Sequence[Delivery]) -> None:
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for d in delivered:
            if d.n:
                name, level = kind_of(d.order.prompt.item)
                found[name][level].append(d.rate)
        crowd = len(state.known) > len(state.active)
        for name, levels in found.items():
            env = state.known[name]
            rate = env.accuracy({level: sum(rates) / len(rates) for level, rates in levels.items()})
            env.move(rate, self.gain, self.target, self.most)
            env.rates, env.steps = env.rates[-self._memory :], env.steps[-self._memory :]
            # With nobody to take its place, an environment stays.
            if crowd and finished(env, self.patience, self.window, self.slope):
                env.leave()
                state.retired += 1
                state.active = [other for other in state.active if other != name]

    @property
    def _memory(self) -> int:
        return max(self.patience, self.window)


def kind_of(item: Item) -> tuple[str, int]:
    """An item's environment and level; items that name none are all of the same."""
    return str(item.meta.get(ENVIRONMENT, "")), item.level


def made_to_order(step: Step, state: ScalerState, wanted: collections.Counter[tuple[str, int]]) -> list[Item]:
    """Items of the kinds wanted, from the stream, passing over others.

    A kind that does not come is forgotten, and the next items of any kind take the places that are left: a stream may
    change while a run goes on.
    """
    missing, out = collections.Counter(wanted), list[Item]()
    want, looked = sum(wanted.values()), 0
    while len(out) < want:
        (item,) = step.supply.take(1)
        state.see([item])
        looked += 1
        if not missing:
            out.append(item)
        elif missing[kind_of(item)] > 0:
            missing[kind_of(item)] -= 1
            missing = +missing
            out.append(item)
            looked = 0
        elif looked >= PATIENCE * sum(len(env.levels) for env in state.known.values()):
            for name, level in missing:
                state.known[name].forget(level)
            missing = collections.Counter()
    return out


def _why(item: Item, state: ScalerState) -> str:
    name, level = kind_of(item)
    return f"level {level}, the policy stands at {state.known[name].level:.2f}{f' of {name}' if name else ''}"


@dataclass(frozen=True, slots=True)
class ScalerRecipe:
    """GRPO on instances made to order at the level where the policy is right half the time.

    The paper's environments are synthesised from programming problems with up to 100 levels each; here they are the
    tasks and levels of the stream, so it wants one that mixes them (`mixed:arithmetic`). On a task of one level it is
    GRPO. An environment that makes room is only seen to where others wait for its place: `active` must stay below
    their number, and a prompt's order says where its environment stands.
    """

    card: ClassVar[Card] = Card(
        "scaler", "Difficulty that follows the policy", "2601.04809", 2026,
        "40.2 points on average (Qwen3-1.7B-Base) where static data sets give 38.9 to 39.1", ("control", "generate"),
        "grpo",
        Evidence("share of groups with variance while skill grows", "levels drawn evenly", "higher", 0.05, seeds=5,
                 check="rolltree_papers.scaler.study:scaler"),
        counter=Counter("budget/other_levels"),
    )  # fmt: skip
    group: int = 8
    active: int = 0
    """Environments that supply prompts; 0 = half of those there are (64 of 2,739 in the paper)."""
    target: float = 0.5
    """Pass rate that the level is steered to."""
    gain: float = 2.0
    """How far the level moves with the distance from the target."""
    slope: float | None = 0.0
    """Progress per visit at or below which it makes room; None = one that rests at the target stays, as it should
    where the policy's skill has."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with another choice of prompts."""
        check_group("scaler", self.group)
        return Parts(
            "scaler", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Scaler(self.active, target=self.target, gain=self.gain, slope=self.slope),
        )  # fmt: skip
