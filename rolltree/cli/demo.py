"""`rolltree demo`: the main job in a few minutes, on the embedded policy and nothing else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rolltree.cli.common import console, parse
from rolltree.compare.compare import CompareConfig, main
from rolltree.view.server import ViewConfig

ABOUT = """Train the embedded policy to use a calculator that fails now and then, at one budget of decoded tokens:
with GRPO, with ARPO, which forks a rollout after the calculator's answers, and with ARPO without forks, so that what
the forks do can be told from the rest.

Prints learning curves and a table, and writes a report with a tree for any browser. Run it again and it goes on where
it was.
"""
RECIPES = ("grpo", "arpo")
"""A flat group and a tree, beside which the comparison puts the tree's recipe without forks."""


@dataclass(frozen=True)
class DemoArguments:
    """The demo's size. The defaults end within six minutes on two cores."""

    out: Path = Path("runs/demo")
    """Where report.html and the runs go."""
    task: str = "calculator"
    """A task's name (rolltree tasks); one with turns, so that there are answers to fork after."""
    budget: str = "30k"
    """Decoded tokens for each run."""
    seeds: int = 3
    """Runs of each recipe."""
    seed: int = 0
    """The first seed."""
    json: bool = False
    """Print the result as JSON instead of tables."""


def run(arguments: Sequence[str]) -> int:
    """One comparison with the defaults of a first look."""
    asked = parse(DemoArguments, arguments, "demo", ABOUT)
    out = console()
    if not asked.json:
        out.print(
            f"The embedded policy learns {asked.task}, {asked.seeds} seeds each, {asked.budget} decoded tokens a run:\n"
            "  grpo       flat groups\n"
            "  arpo       trees: a rollout forks after what the environment answered\n"
            "  arpo flat  the same without forks\n",
            highlight=False,
        )
    code = main(
        CompareConfig(
            recipes=RECIPES, task=asked.task, budget=asked.budget, seeds=asked.seeds, first_seed=asked.seed,
            eval_every=4, eval_samples=4, out=asked.out, cache=asked.out / "cache", json=asked.json,
        )
    )  # fmt: skip
    if code == 0 and not asked.json:
        view, name = ViewConfig(), _program()
        out.print(f"viewer  {name} view {asked.out}   every tree and token, at http://{view.host}:{view.port}/")
        out.print(f"next    {name} rollout arpo --task {asked.task}   a tree in this terminal")
    return code


def _program() -> str:
    """How this program is called here: by its name, or by its path where no shell would find it."""
    if shutil.which("rolltree"):
        return "rolltree"
    path = Path(sys.argv[0])
    return os.path.relpath(path) if path.name == "rolltree" else f"{os.path.relpath(sys.executable)} -m rolltree"
