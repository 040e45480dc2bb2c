"""A world of prompts whose pass rates are known, that serves the very plans a training run follows.

A prompt is a logit of success. Rollouts are coin tosses. Training raises a prompt's logit by its group's summed
absolute advantages, so that groups without variance teach nothing and larger groups teach more (a constant divisor),
and every logit drifts a little with each step, because other prompts move the policy too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rolltree.control.history import History
from rolltree.control.order import Delivery, Grades, Order, Written
from rolltree.control.plan import Apart, Control, Plan, Step, refilled
from rolltree.task.protocol import Item

Floats = NDArray[np.float64]
ANSWER = "0123456789"
"""The right answer to every simulated prompt: what hints are cut from."""


def sigmoid(x: Floats | float) -> Floats:
    """1 / (1 + e^−x)."""
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


@dataclass(slots=True)
class PromptWorld:
    """Prompts with logits N(`mean`, `spread`²) (or the given ones), as the supply of a run."""

    count: int = 1000
    seed: int = 0
    mean: float = -0.5
    spread: float = 3.0
    drift: float = 0.01
    """Standard deviation of what every logit moves in a step."""
    gain: float = 0.15
    """What training on 8 rollouts, half of them right, adds to their prompt's logit; other groups by their Σ|A|."""
    per_hint: float = 8.0
    """What showing the whole answer would add to a logit."""
    logits: Floats = field(default_factory=lambda: np.zeros(0))
    texts: Sequence[str] = ()
    taken: int = 0
    rng: np.random.Generator = field(init=False)
    begun: Floats = field(init=False)
    """The logits at the start."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([11, self.seed])
        if not len(self.logits):
            self.logits = self.rng.normal(self.mean, self.spread, self.count)
        self.logits = np.array(self.logits, np.float64)
        self.count, self.begun = len(self.logits), self.logits.copy()

    # -- as a supply -----------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[Item]:
        """The next items, over and over."""
        self.taken += count
        return self.at(range(self.taken - count, self.taken))

    def at(self, places: Iterable[int]) -> list[Item]:
        """Items by place."""
        return [self._item(place % self.count) for place in places]

    def _item(self, i: int) -> Item:
        return Item(f"p{i}", self.texts[i] if self.texts else f"prompt {i}", ANSWER)

    # -- as a policy -----------------------------------------------------------------------------------------------

    @property
    def rates(self) -> Floats:
        """The true pass rates now."""
        return sigmoid(self.logits)

    def rate(self, order: Order) -> float:
        """The true pass rate of an order, hint included."""
        edit, logit = order.brief, float(self.logits[index(order)])
        if edit is not None:
            logit += self.per_hint * min(len(edit.text) / len(ANSWER), 1.0)
        return float(sigmoid(logit))

    def serve(self, order: Order, width: int) -> Delivery:
        """Toss the coins."""
        n = width if order.width is None else order.width
        if not order.judged:
            # What these prompts foretell of themselves: their pass rates at the start, unknown lengths.
            said = f"{round(8 * float(sigmoid(self.begun[index(order)])))} 10"
            return Delivery(order, (), (4,) * n, 4 * n, texts=(said,) * n)
        if order.given:
            # A success of before, judged as it was.
            return Delivery(order, (1.0,) * len(order.given), (10,) * len(order.given), solved_text=ANSWER)
        right = self.rng.random(n) < self.rate(order)
        texts = (ANSWER,) * n if order.texts else ()
        solved = ANSWER if right.any() else ""
        written = (Written((ANSWER,)),) * n if order.texts else ()
        return Delivery(order, tuple(right.astype(float)), (10,) * n, 10 * n, solved_text=solved, texts=texts,
                        turns=(0,) * n, written=written)  # fmt: skip

    def pass_time(self, delivered: Sequence[Delivery]) -> None:
        """One step of training and drift."""
        for group in grouped(d for d in delivered if d.order.judged).values():
            weight = group[0].order.marks.get("prompt_weight", 1.0)
            self.logits[index(group[0].order)] += self.gain * weight * mass(group) / 4
        self.logits += self.rng.normal(0, self.drift, self.count) if self.drift else 0.0


@dataclass(slots=True)
class Log:
    """What one simulated step came to."""

    delivered: list[Delivery]
    groups: int
    effective: int
    """Groups with variance."""
    rollouts: int
    """All that were drawn, measuring ones included."""


Watch = Callable[[Step, "PromptWorld"], None]


def run(
    control: Control, world: PromptWorld, steps: int, *, prompts: int = 64, width: int = 8, rounds: int = 1,
    watch: Watch | None = None, state: object = None, history: History | None = None, first: int = 1,
) -> list[Log]:  # fmt: skip
    """Follow a control for some steps; `watch` is called before each with the step and the world as it is then."""
    state = control.start() if state is None else state
    history = History() if history is None else history
    out: list[Log] = []
    for number in range(first, first + steps):
        rng = np.random.default_rng([23, world.seed, number])
        step = Step(number, prompts, width, rng, world, history, lambda item: str(item.answer))
        if watch is not None:
            watch(step, world)
        delivered: list[Delivery] = []
        follow(refilled(control, state, step, rounds), world, width, delivered, history, number)
        teaching = grouped(delivered)
        effective = sum(mixed(g) for g in teaching.values())
        out.append(Log(delivered, len(teaching), effective, sum(d.n for d in delivered)))
        world.pass_time(delivered)
    return out


def follow(plan: Plan, world: PromptWorld, width: int, into: list[Delivery], history: History, number: int) -> None:
    """Serve a plan to its end, as training does; plans that stand apart come one after the other."""
    answer: list[Delivery] | None = None
    while True:
        try:
            orders = next(plan) if answer is None else plan.send(answer)
        except StopIteration:
            return
        first = len(into)
        if isinstance(orders, Grades):
            rewards = orders.rewards
            for i, d in enumerate(into):
                if not d.order.judged and d.order.prompt.place in rewards:
                    into[i] = replace(d, rewards=rewards[d.order.prompt.place])
            answer = [d for d in into if not d.order.judged and d.order.prompt.place in rewards]
            continue
        if isinstance(orders, Apart):
            for part in orders.plans:
                follow(part, world, width, into, history, number)
        else:
            served = [world.serve(order, width) for order in orders]
            into.extend(served)
            history.observe(served, number)
            groups = grouped(into)
            for i in range(first, len(into)):
                group = groups.get(into[i].order.prompt.place, [])
                into[i] = replace(into[i], kept=mixed(group))
        answer = into[first:]


def grouped(delivered: Iterable[Delivery]) -> dict[int, list[Delivery]]:
    """What teaches, by prompt."""
    out: dict[int, list[Delivery]] = {}
    for d in delivered:
        if d.order.for_training:
            out.setdefault(d.order.prompt.place, []).append(d)
    return out


def mixed(group: Sequence[Delivery]) -> bool:
    """Whether a group has variance."""
    return len({r for d in group for r in d.rewards}) > 1


def mass(group: Sequence[Delivery]) -> float:
    """Σ|A| of a group under centred advantages: 2 n p (1 − p) of its own outcomes."""
    n, right = sum(d.n for d in group), sum(d.solved for d in group)
    return 2 * right * (1 - right / n) if n else 0.0


def index(order: Order) -> int:
    """Which simulated prompt an order is about."""
    return int(order.prompt.uid[1:])
