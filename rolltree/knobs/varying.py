"""Knobs that vary over a run: a text that stands wherever a value may stand.

    0.2->1 over 100                       from 0.2 to 1 in 100 steps, then 1
    0.5->10->0.5 over 200 after 20        0.5 for 20 steps, then two stretches of 100 steps
    1, 0.75 at 100, 0.5 at 200            a staircase: each value from its step on
    1, 2 at 50%                           steps as shares of the run, in stairs and behind "over" and "after" alike
    macro, micro every 10                 values in turn, so many steps each
    0.96->0.875 by policy/kl_old in 0..0.01       between two values, by a number of the last step's metrics
    last policy/log_entropy_pivot or none        that number itself; before the first step what stands behind "or"

Steps are finished ones: the first step is made with the value at 0. A schedule has no state: what it says follows from
the step and the last step's numbers, which a checkpoint holds, so a run resumes exactly. How much of a run is over is
such a number (`OVER`): the share of its steps, of its tokens or of its time, by the limit that is nearest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, TypeVar, cast

from rolltree.errors import RolltreeError

Value = float | int | bool | str | None
Told = Mapping[str, float]
"""Numbers of the last step, by the names of its metrics."""
T = TypeVar("T")
Knob = float | str
"""A number, or the text of a schedule."""

OVER = "run/over"
"""Name under which a schedule is told how much of the run is over, 0 to 1."""

_NAMED: dict[str, Value] = {"true": True, "false": False, "none": None}
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?"
_RAMP = re.compile(rf"\s*({_NUMBER}(?:\s*->\s*{_NUMBER})+)\s+over\s+(\d+)(%?)(?:\s+after\s+(\d+)(%?))?\s*")
_STAIR = re.compile(r"\s*([\w.+-]+)\s+at\s+(\d+)(%?)\s*")
_PHASES = re.compile(r"\s*([\w.+-]+(?:\s*,\s*[\w.+-]+)+)\s+every\s+(\d+)\s*")
_BY = re.compile(rf"\s*({_NUMBER})\s*->\s*({_NUMBER})\s+by\s+(\S+)\s+in\s+({_NUMBER})\.\.({_NUMBER})\s*")
_LAST = re.compile(r"\s*last\s+(\S+)\s+or\s+([\w.+-]+)\s*")
_WAYS = "write 0.2->1 over 100, or 1, 0.5 at 100, or 1, 0.5 at 50%, or a, b every 10, or 1->0.5 by METRIC in 0..0.1"


class KnobSchedule(Protocol):
    """What a knob is at each step."""

    def at(self, step: int, told: Told) -> Value:
        """The value after so many finished steps, given the last one's numbers."""
        ...

    @property
    def corners(self) -> tuple[int, ...]:
        """Steps where something begins or ends."""
        ...

    @property
    def reads(self) -> tuple[tuple[str, float], ...]:
        """Numbers of the last step that it follows, each with the values that bound it."""
        ...

    def lasts(self, steps: int) -> bool:
        """Whether a run of so many steps ends before all that it says has happened."""
        ...


@dataclass(frozen=True, slots=True)
class Ramp:
    """Straight stretches between values."""

    values: tuple[float, ...]
    over: int
    after: int = 0
    percent: bool = False
    """Whether both are hundredths of the run."""

    @property
    def corners(self) -> tuple[int, ...]:
        """Both ends and the knees."""
        pieces = len(self.values) - 1
        return (0,) if self.percent else tuple(self.after + -(-self.over * i // pieces) for i in range(pieces + 1))

    @property
    def reads(self) -> tuple[tuple[str, float], ...]:
        """How much of the run is over, at the ends and the knees."""
        pieces = len(self.values) - 1
        ends = [(self.after + self.over * i / pieces) / 100 for i in range(pieces + 1)]
        return tuple((OVER, end) for end in ends) if self.percent else ()

    def lasts(self, steps: int) -> bool:
        """Whether it is still under way when a run of so many steps ends."""
        return not self.percent and self.after + self.over > steps

    def at(self, step: int, told: Told) -> Value:
        """On the line."""
        now = _now(step, told, percent=self.percent)
        along = min(max((now - self.after) / self.over, 0.0), 1.0) * (len(self.values) - 1)
        i = min(int(along), len(self.values) - 2)
        share = along - i
        return self.values[i] * (1 - share) + self.values[i + 1] * share


@dataclass(frozen=True, slots=True)
class Stairs:
    """Each value from its step on."""

    stairs: tuple[tuple[int, Value], ...]
    percent: bool = False
    """Whether they begin at hundredths of the run."""

    @property
    def corners(self) -> tuple[int, ...]:
        """Where each begins."""
        return (0,) if self.percent else tuple(step for step, _ in self.stairs)

    @property
    def reads(self) -> tuple[tuple[str, float], ...]:
        """How much of the run is over, where each begins."""
        return tuple((OVER, begins / 100) for begins, _ in self.stairs) if self.percent else ()

    def lasts(self, steps: int) -> bool:
        """Whether the last has not begun when a run of so many steps ends."""
        return not self.percent and self.stairs[-1][0] >= steps

    def at(self, step: int, told: Told) -> Value:
        """The latest that has begun."""
        now = _now(step, told, percent=self.percent)
        return next(value for begins, value in reversed(self.stairs) if begins <= now)


@dataclass(frozen=True, slots=True)
class Phases:
    """Values in turn."""

    values: tuple[Value, ...]
    every: int
    reads: tuple[tuple[str, float], ...] = ()

    @property
    def corners(self) -> tuple[int, ...]:
        """One round."""
        return tuple(i * self.every for i in range(len(self.values)))

    def lasts(self, steps: int) -> bool:
        """Whether the last never has its turn in a run of so many steps."""
        return self.corners[-1] >= steps

    def at(self, step: int, told: Told) -> Value:
        """Whose turn it is."""
        return self.values[step // self.every % len(self.values)]


@dataclass(frozen=True, slots=True)
class By:
    """Between two values, as a number of the last step lies between two others; at first the first value."""

    low: float
    high: float
    name: str
    start: float
    end: float
    corners: tuple[int, ...] = (0,)

    @property
    def reads(self) -> tuple[tuple[str, float], ...]:
        """The number, at both ends."""
        return (self.name, self.start), (self.name, self.end)

    def lasts(self, steps: int) -> bool:
        """No: it follows no step."""
        return False

    def at(self, step: int, told: Told) -> Value:
        """The share of the way that the number has gone."""
        share = (told.get(self.name, self.start) - self.start) / (self.end - self.start)
        return self.low + (self.high - self.low) * min(max(share, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Last:
    """A number of the last step itself."""

    name: str
    otherwise: Value
    corners: tuple[int, ...] = (0,)

    @property
    def reads(self) -> tuple[tuple[str, float], ...]:
        """The number; nothing is known of its bounds."""
        return ((self.name, 1.0),)

    def lasts(self, steps: int) -> bool:
        """No: it follows no step."""
        return False

    def at(self, step: int, told: Told) -> Value:
        """What was told."""
        return told.get(self.name, self.otherwise)


def schedule(text: str) -> KnobSchedule | None:
    """The schedule that a text is; None where it is none. One that cannot be meant otherwise is refused."""
    if found := _RAMP.fullmatch(text):
        return _ramp(text, found)
    if found := _BY.fullmatch(text):
        low, high, start, end = (float(found[i]) for i in (1, 2, 4, 5))
        return By(low, high, found[3], start, end) if start != end else _refuse(text, "has no width to move in")
    if found := _PHASES.fullmatch(text):
        made = Phases(tuple(_value(v) for v in found[1].split(",")), int(found[2]))
        return made if made.every else _refuse(text, "changes every 0 steps")
    if found := _LAST.fullmatch(text):
        return Last(found[1], _value(found[2]))
    first, *rest = text.split(",")
    stairs = [found for part in rest if (found := _STAIR.fullmatch(part)) is not None]
    if rest and len(stairs) == len(rest) and re.fullmatch(r"\s*[\w.+-]+\s*", first):
        return _stairs(text, first, stairs)
    return _refuse(text, "cannot be read") if re.match(rf"\s*{_NUMBER}\s*->", text) else None


_WHOLE = 100
_MIXED = "counts steps and shares of the run at once"
_BEYOND = "goes on behind the end of the run"


def _ramp(text: str, found: re.Match[str]) -> KnobSchedule | None:
    over, after, percent = int(found[2]), int(found[4] or 0), found[3] == "%"
    if not over:
        return _refuse(text, "lasts no step")
    if after and (found[5] == "%") != percent:
        return _refuse(text, _MIXED)
    if percent and over + after > _WHOLE:
        return _refuse(text, _BEYOND)
    return Ramp(tuple(float(v) for v in found[1].split("->")), over, after, percent)


def _stairs(text: str, first: str, later: list[re.Match[str]]) -> KnobSchedule | None:
    steps = [(0, _value(first)), *((int(found[2]), _value(found[1])) for found in later)]
    if not all(a < b for (a, _), (b, _) in pairwise(steps)):
        return _refuse(text, "has stairs out of order")
    if len({found[3] for found in later}) > 1:
        return _refuse(text, _MIXED)
    percent = later[0][3] == "%"
    return _refuse(text, _BEYOND) if percent and steps[-1][0] >= _WHOLE else Stairs(tuple(steps), percent)


def _now(step: int, told: Told, *, percent: bool) -> float:
    """Where a run stands, in the unit of a schedule."""
    return _WHOLE * told.get(OVER, 0.0) if percent else step


def by_share(text: str) -> bool:
    """Whether a text is a schedule that counts in shares of the run."""
    found = schedule(text)
    return found is not None and any(name == OVER for name, _ in found.reads)


def is_schedule(value: object) -> bool:
    """Whether a knob's value is the text of a schedule."""
    return isinstance(value, str) and schedule(value) is not None


def settled(thing: T, step: int = 0, told: Told | None = None, where: str = "") -> T:
    """A dataclass of knobs with every schedule in it replaced by its value, dataclasses and tables inside included."""
    if not is_dataclass(thing) or isinstance(thing, type):
        return thing
    now: dict[str, Any] = {}
    for field in fields(thing):
        given, name = getattr(thing, field.name), f"{where}{field.name}"
        if not field.init:
            continue
        if isinstance(given, str):
            value = _said(given, str(field.type), step, told or {}, name)
        elif field.name == "card":
            continue
        elif isinstance(given, Mapping):
            inner = cast("Mapping[str, Any]", given)
            value = {k: _said(v, "Any", step, told or {}, f"{name}.{k}") if isinstance(v, str) else v
                     for k, v in inner.items()}  # fmt: skip
            value = given if value == inner else value
        else:
            value = settled(given, step, told, f"{name}.")
        if value is not given:
            now[field.name] = value
    return cast(T, replace(cast(Any, thing), **now)) if now else thing


def schedules(thing: Any, where: str = "") -> dict[str, str]:
    """The texts of all schedules in a dataclass of knobs, by dotted name."""
    out: dict[str, str] = {}
    if isinstance(thing, Mapping):
        held = [(str(k), v, True) for k, v in cast("Mapping[Any, Any]", thing).items()]
    elif is_dataclass(thing) and not isinstance(thing, type):
        held = [(field.name, getattr(thing, field.name), field.init) for field in fields(thing)]
    else:
        return out
    for own, given, init in held:
        name = f"{where}{own}"
        if isinstance(given, str):
            inner = _QUOTED.findall(given)
            texts = [given] if schedule(given) is not None else [t for t in inner if schedule(t) is not None]
            out |= {name if i == 0 else f"{name}#{i}": text for i, text in enumerate(texts)}
        elif init and own != "card":
            out |= schedules(given, f"{name}.")
    return out


def corners(texts: Mapping[str, str]) -> list[tuple[int, dict[str, float]]]:
    """Steps and numbers of the last step at which what is built must be checked, so that it fits all along: around
    every step where something begins or ends."""
    made = [found for text in texts.values() if (found := schedule(text)) is not None]
    near = {step + i for one in made for step in one.corners for i in (-1, 0, 1)}
    steps = sorted(step for step in near | {0} if step >= 0)
    read = [pair for one in made for pair in one.reads if pair[0] != OVER]
    ends: list[dict[str, float]] = [{}] if not read else [{}, dict(read), dict(reversed(read))]
    shares = {share + near for one in made for name, share in one.reads if name == OVER for near in (-0.01, 0.0, 0.01)}
    over: list[dict[str, float]] = [{}, *({OVER: share} for share in sorted(shares) if 0 < share <= 1)]
    return [(step, told | part) for step in steps for told in ends for part in over]


_QUOTED = re.compile(r"(?<=['\"])[^'\"]+(?=['\"])")


def _said(given: str, kind: str, step: int, told: Told, name: str) -> Value:
    found = schedule(given)
    if found is not None:
        value = found.at(step, told)
        return round(value) if isinstance(value, float) and "int" in kind and "float" not in kind else value
    if "str" not in kind and "Literal" not in kind and kind.split(" | ", maxsplit=1)[0] in ("int", "float", "bool"):
        raise RolltreeError(f"{name}={given!r} is neither a value nor a schedule; {_WAYS}")
    # A part written with its knobs, as in downsampled(leaves='0.2->1 over 100'): schedules stand in quotes.
    return re.sub(r"'([^']*)'|\"([^\"]*)\"", lambda m: _inner(m, step, told), given) if "(" in given else given


def _inner(found: re.Match[str], step: int, told: Told) -> str:
    one = schedule(found[1] or found[2] or "")
    return found[0] if one is None else repr(one.at(step, told))


def _value(text: str) -> Value:
    text = text.strip()
    if text.lower() in _NAMED:
        return _NAMED[text.lower()]
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        return text


def _refuse(text: str, why: str) -> None:
    raise RolltreeError(f"the schedule {text!r} {why}; {_WAYS}")
