"""Instances made to order: each environment's difficulty follows the policy, and few are active at a time (SCALER)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rolltree.control.methods.scaler_active import Environment, finished
from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Plan, Step
from rolltree.task.items import ENVIRONMENT
from rolltree.task.protocol import Item
from rolltree.tree.values import storable

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
        wanted: Counter[tuple[str, int]] = Counter()
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


def made_to_order(step: Step, state: ScalerState, wanted: Counter[tuple[str, int]]) -> list[Item]:
    """Items of the kinds wanted, from the stream, passing over others.

    A kind that does not come is forgotten, and the next items of any kind take the places that are left: a stream may
    change while a run goes on.
    """
    missing, out = Counter(wanted), list[Item]()
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
            missing = Counter()
    return out


def _why(item: Item, state: ScalerState) -> str:
    name, level = kind_of(item)
    return f"level {level}, the policy stands at {state.known[name].level:.2f}{f' of {name}' if name else ''}"
