"""What a run says while it goes: a bar with time left on a terminal, plain lines elsewhere, and always a log file."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from math import nan
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rolltree.console import Terminal
from rolltree.metrics.log import MetricsLog, Tracker
from rolltree.rollout.underway import KIND, failures, said_of
from rolltree.task.data.printed import LOG as PRINTED
from rolltree.training.config import TrainConfig, TrainError
from rolltree.training.loop import LAPS, RunEvent
from rolltree.tree.store.atomic import naming
from rolltree.visible import visible

# Trackers that a run's numbers go to beside its own file: TensorBoard, wandb, trackio.

TRACKERS = {"tensorboard": "trackers", "wandb": "wandb", "trackio": "trackers"}
"""Trackers by name, with the extra that brings each."""


def open_trackers(names: tuple[str, ...], folder: Path, config: Mapping[str, Any]) -> tuple[Tracker, ...]:
    """The trackers asked for; one that is unknown or not installed is refused in one sentence."""
    return tuple(_open(name, folder, config) for name in names)


def _open(name: str, folder: Path, config: Mapping[str, Any]) -> Tracker:
    if name not in TRACKERS:
        raise TrainError(f"no tracker {name!r}; there are {', '.join(TRACKERS)}")
    try:
        return _TensorBoard(folder) if name == "tensorboard" else _Logged(name, folder, config)
    except ImportError:
        raise TrainError(f"the tracker {name} is not installed; install rolltree[{TRACKERS[name]}]") from None


class _TensorBoard:
    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Logged:
    """wandb, and trackio, which has its interface."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        import importlib

        module: Any = importlib.import_module(name)
        options: dict[str, Any] = {"dir": str(folder)} if name == "wandb" else {}
        self._module = module
        module.init(project="rolltree", name=folder.name, config=json.loads(json.dumps(config, default=str)), **options)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._module.log(dict(numbers), step=step)

    def close(self) -> None:
        self._module.finish()


TOLD = 8
"""Failures of different words that are said; the others are counted in every step's numbers."""

_WARNINGS = logging.getLogger("rolltree")


class Reporter:
    """Listens to a run. `quiet` keeps only the log file."""

    def __init__(self, log: Path, config: TrainConfig, *, quiet: bool = False, console: Terminal | None = None) -> None:
        self._config = config
        self._quiet = quiet
        self._console = console or Terminal(stderr=True)
        self._place = log
        self._log = log.open("a", encoding="utf-8")
        # On 80 columns the numbers need the room that a bar would take.
        self._narrow = self._console.width < 100
        bar = () if self._narrow else (BarColumn(24),)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), *bar, MofNCompleteColumn(),
            TimeRemainingColumn(compact=True), console=self._console,
            disable=quiet or not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=config.steps)
        self._step = ""
        """The last step's numbers, in short."""
        self._rate = ""
        """The last evaluation's."""
        self._asked = -1
        """The last step whose evaluation was announced."""
        self._warned = 0
        self._spoke = 0.0
        self._told = set[str]()
        self._heard = _Heard(self)
        self._printed = _Printed(self)
        self._saying = threading.Lock()

    def __enter__(self) -> Reporter:
        self._bar.start()
        _WARNINGS.addHandler(self._heard)
        PRINTED.addHandler(self._printed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _WARNINGS.removeHandler(self._heard)
        PRINTED.removeHandler(self._printed)
        self._bar.stop()
        with suppress(OSError) if error is not None else nullcontext():  # what went wrong first is the news
            self._last_words(error)
            with naming(self._place):
                self._log.close()

    def _last_words(self, error: BaseException | None) -> None:
        if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
            self.say("stopped from outside; resume=True (--resume) goes on", shown=False)
        elif error is not None:
            self.say(f"stopped: {type(error).__name__}: {error}", shown=False)

    def __call__(self, live: RunEvent) -> None:
        """Take note of something that happened."""
        n = live.numbers
        if live.kind in ("growing", "grown"):
            self._show("rolling out" if live.kind == "growing" else "learning")
        elif live.kind == "evaluating":
            done, items = int(n["done"]), int(n["items"])
            self._show(f"evaluating {done}/{items}")
            if not done and self._asked != live.step:  # a slow engine has none done for a while
                self._asked = live.step
                samples = self._config.eval_samples
                self.say(f"step {live.step}: evaluating {items} held-out items, {samples} samples each",
                         shown=not self._console.is_terminal)  # fmt: skip
        if live.kind == "trained":
            self._step = f"reward {n.get('reward/mean', nan):.3f} len {n.get('rollout/length', nan):.0f} {_speed(n)}"
            self._bar.update(self._task, completed=live.step)
            self._show("")
            now = time.monotonic()
            every = self._console.is_terminal or now - self._spoke < 10
            self.say(_step_line(live, self._config), shown=not every)
            self._spoke = self._spoke if every else now
        elif live.kind == "evaluated":
            self._failures(live)
            self._rate = f"pass@1 {n['eval/pass@1']:.1%}" if n["eval/items"] else "pass@1 –"
            self._show("")
            rates = [k for k in n if k.startswith("eval/pass@") and not k.endswith(("_low", "_high"))]
            said = ", ".join(
                f"{k.removeprefix('eval/')} {n[k]:.1%} ({n[f'{k}_low']:.1%}–{n[f'{k}_high']:.1%})" for k in rates
            )
            self.say(f"step {live.step}: held out {said if n['eval/items'] else 'nothing was measured'}")
        elif live.kind == "grown":
            self._failures(live)
        elif live.note:
            self.say(f"step {live.step}: {live.note}")

    def _failures(self, live: RunEvent) -> None:
        """Say what failed when it first does, and again where something else does."""
        told = said_of(live.trees)
        kind = told.partition("the first: ")[2]
        if told and kind not in self._told and len(self._told) < TOLD:
            self._told.add(kind)
            self._warned += 1
            self.say(f"step {live.step}: {told}")

    def warn(self, text: str) -> None:
        """Say what somebody warns of, and count it."""
        self._warned += 1
        self.say(text)

    def _show(self, doing: str) -> None:
        """What is done now, and the last numbers."""
        warned = f"{self._warned} warning{'s' * (self._warned > 1)}" if self._warned else ""
        numbers = "" if doing and self._narrow else self._step
        words = (doing, self._rate, numbers, warned)
        self._bar.update(self._task, description=" · ".join(word for word in words if word))

    def say(self, text: str, *, shown: bool = True, style: str = "") -> None:
        """A line for the log, and for the screen unless it would only repeat the bar."""
        with self._saying, naming(self._place):  # engines warn from threads of their own
            self._log.write(f"{time.strftime('%H:%M:%S')} {visible(text)}\n")
            self._log.flush()
        if shown and not self._quiet:
            self._bar.console.print(text, highlight=False, markup=False, style=style or None)


class _Heard(logging.Handler):
    """Says what the package warns of: an engine that ran out of memory or stands still."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        self._reporter.warn(record.getMessage())


class _Printed(logging.Handler):
    """Writes down what rewards print; where the run prints they have shown it themselves."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """One call."""
        self._reporter.say(record.getMessage(), shown=False)


def _step_line(live: RunEvent, config: TrainConfig) -> str:
    n = live.numbers
    spent = _seconds(n)
    return (
        f"step {live.step}/{config.steps}: reward {n.get('reward/mean', nan):.3f}, "
        f"length {n.get('rollout/length', nan):.0f}, {_speed(n)}, trained {n.get('budget/trained', 0):,.0f} of "
        f"{n['budget/decoded']:,.0f} tokens, {spent:.2f} s"
    )


def _seconds(numbers: Mapping[str, float]) -> float:
    return sum(numbers.get(f"time/{lap}", 0.0) for lap in LAPS)


def _speed(numbers: Mapping[str, float]) -> str:
    """Tokens decoded in a second of the whole step, learning included."""
    spent = _seconds(numbers)
    return f"{numbers['budget/decoded'] / spent:,.0f} tok/s" if spent else "– tok/s"


WARNED = "warnings"
"""The kind of lines in metrics.jsonl that say what was warned of."""


class WarningLog(logging.Handler):
    """Writes what the package warns of into a run's numbers, with the next thing that happens in the run."""

    def __init__(self, metrics: MetricsLog) -> None:
        super().__init__(logging.WARNING)
        self._metrics = metrics
        self._waiting: deque[str] = deque()

    def __enter__(self) -> WarningLog:
        _WARNINGS.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        _WARNINGS.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Remember one; threads of engines warn too, and only the run's own writes its numbers."""
        self._waiting.append(record.getMessage())

    def __call__(self, live: RunEvent) -> None:
        """Write down what has come."""
        while self._waiting:
            self._metrics.write_words(WARNED, live.step, said=self._waiting.popleft())


@dataclass(frozen=True, slots=True)
class FailureLog:
    """Listens to a run."""

    metrics: MetricsLog

    def __call__(self, live: RunEvent) -> None:
        """Look at what has just been grown."""
        if live.kind in ("grown", "evaluated"):
            failed, leaves, why = failures(live.trees)
            if failed:
                self.metrics.write_words(KIND, live.step, failed=failed, leaves=leaves, why=why)
