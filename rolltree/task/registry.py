"""Tasks by name: the nano suite, and the adapters behind a prefix (`reasoning-gym:NAME`, `jsonl:PATH`,
`python:PATH`, `mixed:NAME`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from rolltree.errors import did_you_mean
from rolltree.task.items import TaskError
from rolltree.task.nano import arithmetic, calculator, countdown, grid, lookup, records, sql
from rolltree.task.protocol import Task


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What the list of tasks says about one."""

    name: str
    summary: str
    levels: tuple[int, ...]
    interactive: bool
    make: Callable[..., Task]

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names that `load_task` takes besides the level."""
        return tuple(name for name in _accepted(self.make) if name != "level")


def _accepted(make: Callable[..., Task]) -> tuple[str, ...]:
    """Knobs a constructor takes; a last `**` stands for any."""
    parameters = signature(make).parameters.values()
    return tuple("**" if one.kind is one.VAR_KEYWORD else one.name for one in parameters)


_SUITE: tuple[tuple[Callable[..., Task], Iterable[int], str], ...] = (
    (arithmetic.Arithmetic, arithmetic.TERMS, "chained sums with written steps"),
    (countdown.Countdown, countdown.NUMBERS, "reach a target from given numbers, in attempts"),
    (lookup.Lookup, lookup.HOPS, "multi-hop questions answered with a search tool"),
    (sql.Sql, sql.LEVELS, "questions answered by queries that can be tried"),
    (grid.Grid, grid.LAYOUTS, "walk to a goal past locked doors"),
    (records.Records, records.SHAPES, "JSON records against a schema"),
    (calculator.Calculator, calculator.CHAINS, "sums with a calculator that fails now and then"),
)
NANO: Mapping[str, TaskInfo] = {
    task.name: TaskInfo(task.name, summary, tuple(levels), task.max_turns > 0, make)
    for make, levels, summary in _SUITE
    for task in (make(),)
}
"""The nano suite in reading order."""
PREFIXES: Mapping[str, str] = {
    "reasoning-gym": "a data set of reasoning-gym by name",
    "jsonl": "a file of prompts and answers",
    "python": "a file of prompts and answers, worked out with Python",
    "mixed": "all levels of nano tasks in one stream, as in mixed:arithmetic or mixed:arithmetic+records",
}
"""Prefix of an adapter -> what its name stands for."""


def list_tasks() -> tuple[TaskInfo, ...]:
    """The tasks that need nothing but this package."""
    return tuple(NANO.values())


def load_task(name: str, *, level: int | None = None, **knobs: Any) -> Task:
    """A task by name, at a level (None = its default) and with knobs; unknown ones are refused with the nearest known.

    `reasoning-gym:NAME` gives a data set of reasoning-gym, `jsonl:PATH` a file of prompts and math answers,
    `python:PATH` the same with a Python tool, `mixed:NAME+NAME` all levels of nano tasks in one stream.
    """
    prefix, colon, rest = name.partition(":")
    if level is not None:
        knobs["level"] = level
    if colon:
        make, fixed = _adapter(prefix), (rest,)
    elif name in NANO:
        make, fixed = NANO[name].make, ()
    else:
        known = ", ".join([*NANO, *(f"{prefix}:…" for prefix in PREFIXES)])
        raise TaskError(f"there is no task {name!r}{near(name, NANO)}; known are {known}")
    accepted = _accepted(make)[len(fixed) :]
    for knob in knobs:
        if knob not in accepted and "**" not in accepted:
            raise TaskError(f"{name} has no knob {knob!r}{near(knob, accepted)}; it takes {', '.join(accepted)}")
    return make(*fixed, **knobs)


def near(name: str, known: Iterable[str]) -> str:
    """`: did you mean 'x'?` where one of the known names is close, else nothing."""
    question = did_you_mean(name, known)
    return f" ({question})" if question else ""


def _adapter(prefix: str) -> Callable[..., Task]:
    """The adapter behind a prefix; its module is imported here and nowhere else."""
    if prefix == "reasoning-gym":
        from rolltree.task.reasoning_gym import ReasoningGym

        return ReasoningGym
    if prefix == "jsonl":
        from rolltree.task.math_answers import MathAnswers

        return MathAnswers
    if prefix == "python":
        from rolltree.task.python_tool import PythonTool

        return PythonTool
    if prefix == "mixed":
        from rolltree.task.mixed import Mixed

        return Mixed
    raise TaskError(f"there is no adapter {prefix!r}{near(prefix, PREFIXES)}; known are {', '.join(PREFIXES)}")
