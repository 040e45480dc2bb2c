"""Sums in chains with a library (`chained:calculator`): what one question saved may be called in those after it.

The questions of a chain do the same with other numbers: `calc 312*47-85`, then `calc 58*47-85`. Beside the calculator's
calls the policy may write a routine and call it at once, `f:*47-85 312`, which saves it if nothing failed; `f58` calls
it again, and writing `f:` anew replaces it. After an answer the next question is shown with the routines there are:
`calc 58*47-85 f`. The library is part of a rollout's state, so no two rollouts share one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import ClassVar

from rolltree.task.items import TaskError, digest, stream
from rolltree.task.nano.calculator import ANSWER, CALL, Calculator, Desk, draw_chain
from rolltree.task.nano.countdown import OPERATIONS
from rolltree.task.nano.expert import slip
from rolltree.task.protocol import Item, Reply, Split, Verdict

STEP = r"[-+*]\d{1,9}"
DEFINE = re.compile(rf"([a-z]):((?:{STEP}){{1,4}}) (-?\d{{1,12}})\n")
USE = re.compile(r"([a-z])(-?\d{1,12})\n")
LARGEST = 10**12
NO_CALL = -1.0
"""What a question earns that was answered without any call."""


@dataclass(frozen=True, slots=True)
class Routine:
    """What was saved."""

    steps: str
    """Operations in order, as `*47-85`."""
    made_in: int
    """The question in which it was written."""


@dataclass(frozen=True, slots=True)
class ChainDesk:
    """Where a chain stands."""

    desk: Desk = field(default_factory=Desk)
    """Calls of the whole chain, and the last number."""
    rewards: tuple[float, ...] = ()
    """Of the questions that were answered."""
    library: Mapping[str, Routine] = field(default_factory=dict[str, Routine])
    called: bool = False
    """Whether any call worked for this question."""
    used: bool = False
    """Whether a routine of an earlier question did."""
    uses: int = 0
    """Questions in which one did."""
    answers: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """Name of the state: all that the future depends on."""
        held = ",".join(f"{name}{r.steps}@{r.made_in}" for name, r in sorted(self.library.items()))
        return f"{self.rewards}/{self.desk.key}/{held}/{self.called:d}{self.used:d}"


@dataclass(frozen=True)
class ChainedCalculator:
    """`length` questions in a row. The score is the share that is answered right; parts say what became of each.

    The node at which a question ends has scores `task_reward` (1 right, 0 wrong, −1 without a call that worked) and
    `used_skill` (1 where a routine of an earlier question was called and worked). What was said before stays in
    sight, so a routine may also be copied by hand.
    """

    measures: ClassVar[frozenset[str]] = frozenset({"saved", "uses"})
    level: int = 2
    length: int = 2
    fail_rate: float = 0.25
    name: str = field(default="chained:calculator", init=False)
    stop: tuple[str, ...] = field(default=("\n",), init=False)
    writes: frozenset[str] = field(default=frozenset({"end:task_reward"}), init=False)

    def __post_init__(self) -> None:
        if self.length < 1:
            raise TaskError(f"chained:calculator: length={self.length} makes no chain; give 1 question or more")
        _ = self.inner

    @property
    def inner(self) -> Calculator:
        """The calculator itself."""
        return Calculator(self.level, self.fail_rate)

    @property
    def max_turns(self) -> int:
        """As many as the calculator's for each question."""
        return self.length * self.inner.max_turns

    @property
    def max_tokens(self) -> int:
        """As many as the calculator's for each question, and some to write a routine."""
        return self.length * (self.inner.max_tokens + 16)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Chains of questions that differ in their first number."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level, self.length))

    def start(self, item: Item) -> tuple[ChainDesk, str | None]:
        """No call made, nothing saved."""
        return ChainDesk(), f"{item.id}/{ChainDesk().key}"

    async def step(self, item: Item, state: ChainDesk, text: str) -> Reply:
        """A call, a routine that is written or called, or the answer to a question."""
        if (answer := ANSWER.fullmatch(text)) is not None:
            return _answered(item, state, int(answer[1]))
        steps, number, name, made = _asked(state, text)
        if not steps:
            return self._reply(item, state, "bad\n", failed=True)
        down = self.inner.fails(item, state.desk.calls)
        desk = replace(state.desk, calls=state.desk.calls + 1)
        value = None if down else _worked_out(number, steps)
        if value is None:
            return self._reply(item, replace(state, desk=desk), "err\n", failed=True)
        now = replace(state, desk=replace(desk, last=value), called=True)
        if made:
            now = replace(now, library={**state.library, name: Routine(steps, len(state.rewards))})
        elif name and state.library[name].made_in < len(state.rewards):
            now = replace(now, used=True)
        return self._reply(item, now, f"{value}\n")

    async def verify(self, item: Item, state: ChainDesk, text: str) -> Verdict:
        """The share of right answers; a question that was not answered is wrong."""
        rewards, parts = state.rewards, {"saved": float(len(state.library)), "uses": float(state.uses + state.used)}
        if len(rewards) == self.length:
            parts["uses"] = float(state.uses)
        else:
            parts |= {"task_reward": 0.0 if state.called else NO_CALL, "used_skill": float(state.used)}
        right = sum(reward == 1.0 for reward in rewards)
        said = ",".join(map(str, state.answers)) or None
        why = "" if right == self.length else f"{right} of {self.length} answered right"
        return Verdict(right / self.length, parts, said, why)

    def act(self, item: Item, state: ChainDesk, rng: Random, noise: float = 0.0) -> str:
        """Write a routine for the whole sum and call it, or call what there is; mistakes as the calculator's expert."""
        place = len(state.rewards)
        steps, start, last = item.meta["steps"], item.meta["starts"][place], state.desk.last
        if state.called and last is not None and not rng.random() < noise / 3:
            return f"={slip(last, rng) if rng.random() < noise / 3 else last}\n"
        if rng.random() < noise / 2:
            return f"={slip(item.answer[place], rng)}\n"
        known = [name for name, routine in sorted(state.library.items()) if routine.steps == steps]
        if known and rng.random() >= noise:
            return f"{known[0]}{start}\n"
        if rng.random() < noise / 3:
            steps = f"{steps[:-1]}{rng.randint(0, 9)}"
        return f"{'abcdef'[len(state.library) % 6]}:{steps} {start}\n"

    def _reply(self, item: Item, state: ChainDesk, text: str, *, failed: bool = False) -> Reply:
        return Reply(text, state, state_key=f"{item.id}/{state.key}", failed=failed)


def _asked(state: ChainDesk, text: str) -> tuple[str, int, str, bool]:
    """Operations, the number they start from, the routine's name, and whether it is being written; "" = no call."""
    if (made := DEFINE.fullmatch(text)) is not None:
        return made[2], int(made[3]), made[1], True
    if (use := USE.fullmatch(text)) is not None:
        routine = state.library.get(use[1])
        return ("" if routine is None else routine.steps), int(use[2]), use[1], False
    if (call := CALL.fullmatch(text)) is not None:
        return f"{call[2]}{call[3]}", int(call[1]), "", False
    return "", 0, "", False


def _worked_out(number: int, steps: str) -> int | None:
    """The result, from left to right; None where it grows beyond all bounds."""
    for step in re.findall(STEP, steps):
        number = OPERATIONS[step[0]](number, int(step[1:]))
        if abs(number) > LARGEST:
            return None
    return number


def _answered(item: Item, state: ChainDesk, answer: int) -> Reply:
    place = len(state.rewards)
    right = float(answer == item.answer[place])
    parts = {"task_reward": right if state.called else NO_CALL, "used_skill": float(state.used)}
    now = ChainDesk(
        replace(state.desk, last=None), (*state.rewards, parts["task_reward"]), state.library,
        uses=state.uses + state.used, answers=(*state.answers, answer),
    )  # fmt: skip
    done = len(now.rewards) == len(item.answer)
    text = "" if done else _question(item.meta["starts"][place + 1], item.meta["steps"], now.library)
    return Reply(text, now, done, state_key=f"{item.id}/{now.key}", parts=parts)


def _question(start: int, steps: str, library: Mapping[str, Routine]) -> str:
    return f"calc {start}{steps}{''.join(f' {name}' for name in sorted(library))}\n"


def _draw(level: int, length: int, rng: Random) -> tuple[str, Item] | None:
    """A sum of the calculator's, and other numbers to begin it with."""
    drawn = draw_chain(level, rng)
    if drawn is None:
        return None
    terms = drawn[1].meta["terms"]
    steps, first = "".join(terms[1:]), int(terms[0])
    content = f"{first}{steps}"
    # What follows depends on the first question alone, so that no prompt stands for two chains.
    others = Random(content).sample(range(first + 1, 2 * first + length + 2), length - 1)
    starts = (first, *others)
    answers = tuple(value for start in starts if (value := _worked_out(start, steps)) is not None)
    meta = {"steps": steps, "starts": starts}
    return content, Item(f"chained-{length}-{digest(content)}", _question(starts[0], steps, {}), answers, level, meta)


def chained(name: str, level: int = 2, length: int = 2, fail_rate: float = 0.25) -> ChainedCalculator:
    """The task behind `chained:NAME`."""
    if name != "calculator":
        raise TaskError(f"chained:{name} does not exist: routines are the calculator's; write chained:calculator")
    return ChainedCalculator(level, length, fail_rate)
