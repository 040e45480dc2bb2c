"""Tasks by name: the nano suite, and the adapters behind a prefix (`reasoning-gym:NAME`, `jsonl:PATH`, `python:PATH`,
`mixed:NAME`, `agent:COMMAND`, `trl:CLASS`, `gym:ENV_ID`, `verifiers:NAME`). Knobs may follow the name:
`countdown?use_all=false`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast
from urllib.parse import parse_qsl

from rolltree.errors import RolltreeError, unknown
from rolltree.knobs.values import checked_knobs
from rolltree.registry import Registry, check_knobs, in_file, raised
from rolltree.task.data.source import is_data
from rolltree.task.items import TaskError
from rolltree.task.nano import arithmetic, calculator, countdown, grid, lookup, records, slides, sql
from rolltree.task.protocol import Task
from rolltree.tree.store.values import read_json


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What the list of tasks says about one."""

    name: str
    summary: str
    levels: tuple[int, ...]
    interactive: bool
    make: Callable[..., Task]
    policy: str = "nano"
    """The model that it is played with where none is named."""

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


@cache
def own_tasks() -> Mapping[str, TaskInfo]:
    """All tasks that need nothing but this package: the nano suite, one that the embedded policy has not learned, and
    those of policies that write no tokens."""
    slide = TaskInfo("slides", "decks from a brief", tuple(slides.SHAPES), False, slides.Slides)
    digit: Any = resolve_name("rolltree.latents.task:Digits")
    return {
        **NANO,
        "slides": slide,
        "digits": TaskInfo("digits", "draw a digit with a denoiser", (1,), False, digit, "digits"),
    }


def _given(_: str, value: Any) -> Callable[..., Task] | None:
    return cast("Callable[..., Task]", value) if callable(value) else None


TASKS = Registry["Callable[..., Task]"](
    "task", "rolltree.tasks", lambda: {name: info.make for name, info in own_tasks().items()}, lambda _: None,
    given=_given, hint="rolltree tasks lists them",
)  # fmt: skip
"""What makes each task, by name; knobs of a task are the arguments it takes."""
PREFIXES: Mapping[str, str] = {
    "reasoning-gym": "a data set of reasoning-gym by name",
    "jsonl": "a file of prompts and answers; one that ends in .jsonl, .json or .parquet needs no prefix",
    "hf": "a data set of the Hugging Face hub, hf:NAME or hf:NAME:SPLIT",
    "python": "a file of prompts and answers, worked out with Python",
    "trl": "a TRL-style environment class, module:Class or file.py:Class",
    "gym": "a Gymnasium environment that speaks text, by its id",
    "verifiers": "a task set or environment of verifiers by name",
    "mixed": "all levels of nano tasks in one stream, as in mixed:arithmetic or mixed:arithmetic+records",
    "spoken": "a nano task whose turns say what they are for, as in spoken:grid",
    "agent": "a program of its own that speaks OpenAI or Anthropic, as in agent:COMMAND?task=NAME",
    "planned": "a nano task whose rollouts begin with a plan, as in planned:grid",
    "labelled": "a nano task whose items say which answers there are to choose from, as in labelled:arithmetic",
    "chained": "questions in a row with a library of routines, as in chained:calculator",
    "tagged": "a task whose answers begin with a tag for how they are given, as in tagged:calculator",
}
"""Prefix of an adapter -> what its name stands for."""
_ADAPTERS: Mapping[str, str] = {
    "reasoning-gym": "rolltree.task.reasoning_gym:ReasoningGym",
    "python": "rolltree.task.python_tool:PythonTool",
    "mixed": "rolltree.task.mixed:MixedTask",
    "spoken": "rolltree.task.nano.spoken:spoken",
    "planned": "rolltree.task.nano.spoken:planned",
    "labelled": "rolltree.task.nano.labelled:labelled",
    "chained": "rolltree.task.nano.chained:chained",
    "tagged": "rolltree.task.tagged:Tagged",
    "trl": "rolltree.task.foreign.tool_class:ToolClass",
    "gym": "rolltree.task.foreign.text_gym:TextGym",
    "agent": "rolltree.gateway.agents.task:AgentTask",
    "verifiers": "rolltree.task.foreign.task_set:from_verifiers",
}
REGISTERED = frozenset({"reasoning-gym", "mixed", "spoken", "planned", "chained"})
"""Prefixes whose names are of parts that are here anyway; those of others are files, modules, commands or far away."""
DATA = ("jsonl", "hf")
"""Prefixes of data, which keeps its whole name."""
FOREIGN = ("trl", "gym", "verifiers", "agent")
"""Prefixes of tasks that run somebody's own code when they are made."""
_KNOBS = re.compile(r"\?(?=[A-Za-z_]\w*=)")


def list_tasks() -> tuple[TaskInfo, ...]:
    """The tasks that need nothing but this package."""
    return tuple(own_tasks().values())


def policy_of_task(name: str) -> str:
    """The model that a task is played with where none is named."""
    known = own_tasks().get(_KNOBS.split(name, maxsplit=1)[0])
    return "nano" if known is None else known.policy


def load_task(name: str, *, level: int | None = None, **knobs: Any) -> Task:
    """A task by name, at a level (None = its default) and with knobs; unknown ones are refused with the nearest known.

    A prefix gives the task of an adapter: a data set of reasoning-gym, a file of prompts and math answers, the same
    with a Python tool, all levels of nano tasks in one stream, an environment of TRL or Gymnasium, a task set of
    verifiers. Knobs may stand in the name, as in `gym:FrozenLake-v1?is_slippery=false&max_turns=20`; values are read as
    JSON, else as text.
    """
    name, knobs = _split_knobs(name, knobs)
    prefix, colon, rest = name.partition(":")
    if level is not None:
        knobs["level"] = level
    if type(knobs.get("level", 0)) is not int:
        raise TaskError(f"level={knobs['level']!r} of {name} is no level; give a whole number")
    if (colon and prefix in DATA) or (prefix not in PREFIXES and is_data(name)):
        make, fixed = _data(), (name,)
    elif colon and (prefix in PREFIXES or not in_file(name)):
        make, fixed = _adapter(prefix), (rest,)
    else:
        if name not in TASKS and Path(name).exists():
            raise TaskError(
                f"{name} is neither a task nor data that is read here; give a .jsonl, .json or .parquet file, or "
                f"jsonl:{name} where it holds JSON lines"
            )
        make, fixed = TASKS.find(name), ()
    accepted = _accepted(make)[len(fixed) :]
    if "**" not in accepted:
        check_knobs(f"task {name!r}", knobs, accepted)
    given = checked_knobs(f"{name}: ", make, knobs)
    if not (in_file(name) or prefix in FOREIGN):
        return make(*fixed, **given)
    try:
        made = make(*fixed, **given)
    except (RolltreeError, OSError):
        raise
    except Exception as error:  # somebody's code, which may fail in any way
        raise TaskError(f"the task {name} cannot be made: {raised(error)}") from error
    if not callable(getattr(made, "items", None)):
        raise TaskError(f"{name} makes no task but {type(made).__name__}; give a class or a function that makes one")
    return made


def is_registered(name: str) -> bool:
    """Whether a name, its knobs included, is of registered tasks alone: built in, or of an installed package."""
    plain, *written = _KNOBS.split(name, maxsplit=1)
    knobs = parse_qsl(written[0], keep_blank_values=True) if written else []
    if any(":" in value for _, value in knobs):  # no number is written so, but every address of code
        return False
    prefix, colon, rest = plain.partition(":")
    if colon and prefix == "tagged":
        return is_registered(rest)
    return prefix in REGISTERED if colon else plain in TASKS.names()


def _split_knobs(name: str, knobs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A name without the knobs written behind it, and all knobs; those given as keywords go first."""
    plain, *written = _KNOBS.split(name, maxsplit=1)
    told = {key: _value(text) for key, text in parse_qsl(written[0], keep_blank_values=True)} if written else {}
    return plain, {**told, **knobs}


def _value(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text


def _data() -> Callable[..., Task]:
    from rolltree.task.data.task import Data

    return Data


def _adapter(prefix: str) -> Callable[..., Task]:
    """The adapter behind a prefix; its module is imported here and nowhere else."""
    if prefix not in _ADAPTERS:
        raise unknown("kind of task", prefix, PREFIXES, "what stands before the colon")
    return resolve_name(_ADAPTERS[prefix])
