"""The options of every verb that takes `--task`, for tasks that are data: they become knobs behind the task's name.

`--task q.jsonl --reward exact` is `--task 'q.jsonl?reward=exact'`, so a run, a comparison and a cluster name the same
task by one string.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

import tyro

from rolltree.tree.store.values import read_json

Repeated = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True)
class DataFlags:
    """Your own data: --task FILE.jsonl, FILE.parquet or hf:NAME:SPLIT (docs/howto/your-data.md)."""

    prompt: str = ""
    """Column of the prompts (text or messages); recognised when left out."""
    answer: str = ""
    """Column of the answers; recognised when left out."""
    chat: Literal["auto", "off"] = "auto"
    """auto: prompts are asked in the policy's chat template where it has one; off: as they stand."""
    system: str = ""
    """The system message: a text, or a file that holds it."""
    think: str = "auto"
    """Tags of thoughts, which are no part of the answer: auto (<think>…</think>), off, or both with a comma."""
    reward: Repeated = ()
    """NAME[:WEIGHT] or FILE.py:FUNCTION[:WEIGHT], once for each reward: exact, contains, number, math, format,
    regex(PATTERN), or a function as TRL or verl calls it. The first decides what is solved; math when left out.
    none alone: nothing is judged; solve answers such items, and votes compare what they say in the end."""
    solved_at: float | None = None
    """A rollout is solved where the first reward is at least this; 1 when left out."""
    holdout: str = ""
    """Held-out items: a share such as 0.1, or a file of them. When left out: the column split, else one in eight."""
    tool: Repeated = ()
    """FILE.py:FUNCTION, once for each function that the policy may call."""
    mcp: Repeated = ()
    """The command that starts an MCP server whose tools the policy may call, once for each server."""

    agent: str = ""
    """A program that answers the items in place of the bare policy: a command such as 'python my_agent.py',
    module:function or file.py:function (docs/howto/agents.md)."""

    def address(self, task: str) -> str:
        """The task's name with what was set behind it, as the agent's task where one plays."""
        named = self._data_address(task)
        mark = "&" if _KNOBS.search(self.agent) else "?"
        return f"agent:{self.agent}{mark}task={quote(named, safe='')}" if self.agent else named

    def _data_address(self, task: str) -> str:
        known = (f for f in fields(self) if f.name != "agent")
        given = {f.name: getattr(self, f.name) for f in known if getattr(self, f.name) != f.default}
        if not given:
            return task
        written = "&".join(f"{name}={quote(_written(value), safe=_PLAIN)}" for name, value in given.items())
        return f"{task}{'&' if _KNOBS.search(task) else '?'}{written}"


def folder_name(task: str) -> str:
    """A task's name as the name of a folder."""
    plain = _KNOBS.split(task, maxsplit=1)[0]
    if "/" in plain:
        plain = Path(plain).stem
    return re.sub(r"[^\w.+-]+", "-", plain)


_KNOBS = re.compile(r"\?(?=[A-Za-z_]\w*=)")
_PLAIN = "/:., ()[]{}<>\"'^$*|!@~"


def _written(value: object) -> str:
    """A value as `load_task` reads it back: JSON, or the bare text where that is read as text."""
    if isinstance(value, tuple) and len(value) == 1:  # pyright: ignore[reportUnknownArgumentType]
        value = value[0]
    if isinstance(value, str):
        try:
            read_json(value)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False)
