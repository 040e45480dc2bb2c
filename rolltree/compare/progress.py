"""Progress of many runs with the time left: a live bar in a terminal, a line per finished run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from rolltree.compare.report.page import duration


@dataclass
class Meter:
    """Work done, in units of one run; reused runs cost nothing and are left out of the estimate."""

    console: Console
    total: int
    done: int = 0
    worked: float = 0.0
    """Runs really made, parts counted."""
    started: float = field(default_factory=time.monotonic)
    bar: Progress | None = None
    task: TaskID | None = None
    _part: float = 0.0

    def left(self) -> float | None:
        """Seconds left, judged by the runs made so far; None before there is anything to judge by."""
        work = self.worked + self._part
        if work < 0.01:
            return None
        return (time.monotonic() - self.started) / work * max(0.0, self.total - self.done - self._part)

    def part(self, share: float, doing: str) -> None:
        """The current run has come this far."""
        self._part = min(max(share, 0.0), 1.0)
        self._show(doing)

    def finish(self, what: str, *, reused: bool, result: str = "") -> None:
        """A run is complete."""
        self.done, self._part = self.done + 1, 0.0
        self.worked += 0 if reused else 1
        self._show(what)
        if self.bar is None or not self.bar.live.is_started:
            how = "reused" if reused else "done"
            self.console.print(
                Text(f"[{self.done}/{self.total}] {what} {how}{result and '  ' + result}   {self._time()}")
            )

    def _time(self) -> str:
        left = self.left()
        if self.done == self.total:
            return f"took {duration(time.monotonic() - self.started)}"
        return "" if left is None else f"{duration(left)} left"

    def _show(self, doing: str) -> None:
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=self.done + self._part, doing=doing, time=self._time())


@contextmanager
def metered(console: Console, total: int) -> Generator[Meter]:
    """A meter over some runs, drawn live when the console is a terminal."""
    meter = Meter(console, total)
    if not console.is_terminal:
        yield meter
        return
    columns = (
        TextColumn("{task.completed:.1f}/{task.total} runs"), BarColumn(),
        TextColumn("{task.fields[doing]}", markup=False), TextColumn("{task.fields[time]}", style="cyan"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        meter.bar, meter.task = bar, bar.add_task("runs", total=total, doing="", time="")
        yield meter
