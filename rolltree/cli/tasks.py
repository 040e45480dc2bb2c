"""`rolltree tasks`: what can be asked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import tyro
from rich.panel import Panel
from rich.text import Text

from rolltree.cli.common import at_least, at_most, console, emit, grid, parse
from rolltree.task.protocol import Task
from rolltree.task.registry import NANO, PREFIXES, list_tasks, load_task
from rolltree.visible import visible

ABOUT = """List the tasks, or show one with items of it.

  rolltree tasks
  rolltree tasks countdown --level 2 --items 5
  rolltree tasks reasoning-gym:basic_arithmetic
"""


@dataclass(frozen=True)
class TasksArguments:
    """Which task to show."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """A task's name; without one, all are listed."""
    level: int | None = None
    """Difficulty; the task's default when left out."""
    items: int = 3
    """How many items to show."""
    split: Literal["train", "test"] = "train"
    """Which split the items are from."""
    seed: int = 0
    """Which items come first."""
    json: bool = False
    """Print JSON instead of tables."""


def run(arguments: Sequence[str]) -> int:
    """List or show."""
    asked = parse(TasksArguments, arguments, "tasks", ABOUT)
    at_least(0, items=asked.items)
    at_most(1_000_000, items=asked.items)
    return _show(asked) if asked.name else _list(asked.json)


def _list(as_json: bool) -> int:
    rows = [
        {
            "task": info.name,
            "levels": f"{min(info.levels)}–{max(info.levels)}",
            "default": info.make().level,
            "turns": "many" if info.interactive else "one",
            "about": info.summary,
        }
        for info in list_tasks()
    ]
    if as_json:
        emit([asdict(info) | {"make": info.name} for info in list_tasks()])
        return 0
    out = console()
    out.print(grid("Tasks that come with Rolltree", rows))
    out.print()
    for prefix, about in PREFIXES.items():
        out.print(f"  {prefix}:…  {about}", highlight=False)
    out.print("\nrolltree tasks NAME shows items of one.", style="dim")
    return 0


def _show(asked: TasksArguments) -> int:
    task: Task = load_task(asked.name, level=asked.level)
    items = list(itertools.islice(task.items(asked.split, asked.seed), asked.items))
    if asked.json:
        emit({"task": task.name, "level": task.level, "items": [asdict(item) for item in items]})
        return 0
    out = console()
    about = NANO[asked.name].summary if asked.name in NANO else ""
    turns = f"up to {task.max_turns} turns" if task.max_turns else "one turn"
    out.print(Text.assemble((task.name, "bold"), f" level {task.level}: {about}".rstrip(": ")))
    out.print(f"{turns}, {task.max_tokens} tokens, ends at {', '.join(map(repr, task.stop))}", style="dim")
    for item in items:
        body = Text(visible(item.prompt))
        body.append(f"\nanswer  {item.answer!r}", style="dim")
        out.print(Panel(body, title=Text(visible(item.id)), title_align="left"))
    return 0
