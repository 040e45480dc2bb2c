"""All controls in one table at one budget: `python -m studies.controllers`.

`--only NAME … --keep` trains the baseline and the arms named, and takes the others from the table that stands.

Every recipe that has a control of its own is trained as its card puts it together, beside GRPO, DAPO and GRPO-RoC; a
control without a recipe stands over GRPO. What is compared comes from the registries, so a new control is in the table
once its file is there. Runs are those of `rolltree compare` and found again in the same cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console

from rolltree.amounts import amount
from rolltree.control.plan import Uniform
from rolltree.control.registry import controls
from rolltree.lab.arms import Arm, arms
from rolltree.lab.compare import Comparison, compare
from rolltree.lab.runner import Conditions, Runner, Shelf
from rolltree.lab.sources import modules_of
from rolltree.lab.trace import LabError
from rolltree.lab.train_runner import TrainRunner
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import load_recipe, recipes
from studies.board_page import Board, write_page
from studies.board_store import joined, stored
from studies.board_table import BoardColumn
from studies.command import run_study

BASELINE = "grpo"
BESIDE = ("dapo", "grpo_roc")
"""Recipes without a control that spend the same budget in another way: they refill a step, or select from more."""
SHARED = frozenset({Uniform.__module__})
NAME = "controllers"
COLUMNS = (BoardColumn("groups without variance", "zero_variance"),)


@dataclass(frozen=True)
class ControllerSettings:
    """What is trained, and where the result goes."""

    only: tuple[str, ...] = ()
    """Labels of arms beside the baseline; all when left out."""
    keep: bool = False
    """Arms that are not trained now stay in the table with the numbers that stand in controllers.json."""
    task: str = "mixed:arithmetic"
    """Levels 1 to 4 of chained arithmetic in equal shares: from mostly solved to hardly ever."""
    budget: str = "60k"
    """Decoded tokens of each run, rollouts that only measure included."""
    set: tuple[str, ...] = ("train.prompts=32",)
    """Knobs as for `rolltree compare`. With the default 16 prompts of so wide a mix GRPO itself gains nothing: half of
    its groups have no variance, and what the others say is mostly noise."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seed 0 was used to choose the knobs."""
    eval_every: int = 5
    """Steps between evaluations."""
    eval_items: int = 64
    """Held-out items of an evaluation."""
    threads: int = 1
    """Threads of processor work."""
    out: Path = Path("docs/measured")
    """Folder that is written to."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content."""


def steered(settings: Sequence[str] = ()) -> tuple[Arm, ...]:
    """The baseline, what is set beside it, and every control: in its own recipe, or over the baseline."""
    own = {name: compose(load_recipe(name)) for name in recipes()}
    mine = [name for name, parts in own.items() if _controls(parts) and name not in (BASELINE, *BESIDE)]
    covered = {type(parts.control) for parts in own.values()}
    bare = [name for name, made in controls().items() if made not in covered and made is not Uniform]
    (plain,) = arms((BASELINE,), settings)
    over = [Arm(f"{BASELINE} + {name}", BASELINE, (("control", name), *plain.knobs)) for name in bare]
    return (*arms((BASELINE, *BESIDE, *mine), settings), *over)


def measured(settings: ControllerSettings, console: Console | None = None, runner: Runner | None = None) -> Comparison:
    """Make (or find) every run and compare all with the baseline."""
    every = steered(settings.set)
    if unknown := set(settings.only) - {arm.label for arm in every}:
        raise LabError(f"no arm {sorted(unknown)[0]!r}; there are: {', '.join(arm.label for arm in every)}")
    chosen = [arm for arm in every if not settings.only or arm.label in (BASELINE, *settings.only)]
    on = Conditions(
        settings.task, amount(settings.budget), eval_every=settings.eval_every, eval_items=settings.eval_items
    )
    known = stored(settings.out / f"{NAME}.json", settings.eval_every, COLUMNS) if settings.keep else []
    fresh = compare(chosen, on, settings.seeds, Shelf(settings.cache, runner or TrainRunner()), console=console)
    return joined(fresh, known, every) if settings.keep else fresh


def main(settings: ControllerSettings) -> None:
    """Write controllers.md, controllers.svg and controllers.json."""
    torch.set_num_threads(settings.threads)
    write_page(
        settings.out / "controllers.md", "All controls at one budget", [board(measured(settings))], command(settings)
    )


def board(result: Comparison) -> Board:
    """What the page says of the comparison."""
    return Board(
        NAME, result,
        "A control is trained in its own recipe, with the credit and objective of its paper; "
        f"“{result.arms[0].label} + …” is one without.",
        COLUMNS,
        remark="A control that asks for more rollouts a step, or measures some, makes fewer steps.",
    )  # fmt: skip


def command(settings: ControllerSettings) -> str:
    """The command line that repeats a page; of one that was added to, that of the whole."""
    words = ["python -m studies.controllers"]
    for name, default in asdict(ControllerSettings()).items():
        value = getattr(settings, name)
        if value != default and name not in ("out", "cache", "threads", *(("only", "keep") if settings.keep else ())):
            given = value if isinstance(value, tuple) else (value,)
            words.append(" ".join([f"--{name.replace('_', '-')}", *map(str, given)]))
    return " ".join(words)


def _controls(parts: object) -> set[str]:
    """Modules of the control stage that a recipe is made of, beside what all recipes have."""
    return {name for name in modules_of(parts) if name.startswith("rolltree.control.")} - SHARED


if __name__ == "__main__":
    raise SystemExit(run_study("controllers", ControllerSettings, main, __doc__))
