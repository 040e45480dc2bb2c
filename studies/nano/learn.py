"""Does reinforcement learning visibly work here? `python -m studies.nano.learn`.

GRPO from the embedded policy on three tasks, several seeds each, judged on held-out items before, while and after. It
writes docs/measured/learning.md with the curves; finished runs are kept, so an interrupted call goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rolltree.analysis.line_colours import task_colour
from rolltree.compare.arms import Arm
from rolltree.compare.curves import value_at
from rolltree.compare.progress import metered
from rolltree.compare.runner import Conditions, Shelf, Spec
from rolltree.compare.stats.paired import t_interval
from rolltree.compare.trace import Trace, write_json
from rolltree.compare.train_runner import TrainRunner
from rolltree.console import Terminal
from studies.command import run_study
from studies.exact.chart import lines

BUDGETS: Mapping[str, int] = {"arithmetic": 400_000, "countdown": 600_000, "grid": 400_000}
"""Decoded tokens per run: what a few minutes on one core pay for."""
POINTS = 12


@dataclass(frozen=True)
class LearnSettings:
    """What is trained, and where the result goes."""

    tasks: tuple[str, ...] = tuple(BUDGETS)
    """Tasks to measure."""
    seeds: int = 3
    """Seeds of each arm."""
    first_seed: int = 1
    """The trainer's default rate was chosen on seed 0, whose held-out items are not judged here again."""
    recipe: str = "grpo"
    """What is trained."""
    out: Path = Path("docs/measured")
    """Folder that is written to."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content."""
    eval_every: int = 25
    """Steps between evaluations."""
    eval_items: int = 128
    """Held-out items of an evaluation."""
    threads: int = 1
    """Threads of processor work."""


def main(settings: LearnSettings) -> None:
    """Train (or find) every run and write the page, the figure and the numbers."""
    torch.set_num_threads(settings.threads)
    shelf = Shelf(settings.cache, TrainRunner())
    found: dict[str, list[Trace]] = {}
    with metered(Terminal(stderr=True), len(settings.tasks) * settings.seeds) as meter:
        for task in settings.tasks:
            arm = Arm(settings.recipe, settings.recipe)
            on = Conditions(task, BUDGETS[task], eval_every=settings.eval_every, eval_items=settings.eval_items)
            for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
                spec = Spec(arm, seed, on)
                reused = shelf.get(spec) is not None
                trace = shelf.make(spec, lambda cost, doing, all=on.budget: meter.part(cost / all, doing))
                meter.finish(f"{task}, seed {seed}", reused=reused, result=f"{trace.curve('pass@1')[1][-1]:.1%}")
                found.setdefault(task, []).append(trace)
    write(settings, found)


def write(settings: LearnSettings, found: Mapping[str, Sequence[Trace]]) -> None:
    """The page, its figure and the numbers behind both."""
    curves = {
        f"{task}, seed {trace.seed}": _points(trace, BUDGETS[task])
        for task, traces in found.items()
        for trace in traces
    }
    settings.out.mkdir(parents=True, exist_ok=True)
    colours = {name: task_colour(name) for name in curves}
    figure = lines("Held-out pass@1", "decoded tokens", "pass@1", curves, log=False, colours=colours)
    (settings.out / "learning.svg").write_text(figure, encoding="utf-8")
    write_json(settings.out / "learning.json", {
        task: [{"seed": t.seed, "rows": [dict(r) for r in t.evaluations]} for t in traces]
        for task, traces in found.items()
    })  # fmt: skip
    rows = [_row(task, traces) for task, traces in found.items()]
    (settings.out / "learning.md").write_text(_page(settings, found, rows))


def _page(settings: LearnSettings, found: Mapping[str, Sequence[Trace]], rows: Sequence[str]) -> str:
    seeds = f"--seeds {settings.seeds} --first-seed {settings.first_seed}"
    command = f"python -m studies.nano.learn --tasks {' '.join(found)} {seeds}"
    return _PAGE.format(recipe=settings.recipe.upper(), command=command, rows="\n".join(rows))


def _points(trace: Trace, budget: float) -> list[tuple[float, float, float]]:
    costs = [budget * k / POINTS for k in range(POINTS + 1)]
    return [(cost, value_at(trace, "pass@1", cost), 0.0) for cost in costs]


def _row(task: str, traces: Sequence[Trace]) -> str:
    first = [float(t.curve("pass@1")[1][0]) for t in traces]
    last = [float(t.curve("pass@1")[1][-1]) for t in traces]
    gain = t_interval([b - a for a, b in zip(first, last, strict=True)])
    minutes = ", ".join(f"{t.cost('seconds') / 60:.1f}" for t in traces)
    ends = ", ".join(f"{a:.0%} → {b:.0%}" for a, b in zip(first, last, strict=True))
    points = f"+{100 * gain.estimate:.0f} ({100 * gain.low:+.0f} to {100 * gain.high:+.0f})"
    return f"| {task} | {BUDGETS[task] // 1000}k | {ends} | {points} | {minutes} |"


_PAGE = """\
# Does it learn?

{recipe} from the embedded policy, at each task's default level, judged on 128 held-out items with 8 samples each that
no training item repeats. One thread and the trainer's default knobs. The default rate was chosen in
trials of seed 0 on these tasks; the seeds here are others and draw held-out items of their own. Repeat it with
`{command}`; the numbers behind the figure are in `learning.json`.

| task | decoded tokens | pass@1 before → after, per seed | gain in points (95 % t interval) | minutes a run |
|---|---:|---|---|---|
{rows}

![Held-out pass@1 against decoded tokens](learning.svg)
"""


if __name__ == "__main__":
    raise SystemExit(run_study("nano.learn", LearnSettings, main, __doc__))
