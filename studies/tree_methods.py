"""All tree methods in one table at one budget: `python -m studies.tree_methods`.

Two boards: a tool that fails, on which all but one of them can be trained, and chained sums, where a rollout is one
answer. Runs are those of `rolltree compare` and found again in the same cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from rolltree.amounts import amount
from rolltree.lab.arms import arms
from rolltree.lab.compare import compare
from rolltree.lab.runner import Conditions, Shelf
from rolltree.lab.train_runner import TrainRunner
from studies.board_page import Board, write_page
from studies.board_table import BoardColumn
from studies.command import run_study

FLAT = ("grpo", "dapo")
"""Baselines without a tree."""
ONE_TURN = ("treepo", "latr", "rose", "ettrl", "echo")
TURNS = ("arpo", "aepo", "treeps_rag", "reex_sql", "cleaner", "poly_ppo")
"""Those that need an environment."""
KNOBS = ("treepo:segment=8", "ettrl:stems=3", "echo:leaves=8", "echo:stems=4")
"""Answers here are some twenty characters, and a prompt's tree is to cost about what a flat group of eight costs."""
TURN_KNOBS = (
    "arpo:leaves=8", "arpo:first=4", "aepo:leaves=8", "aepo:first=4", "reex_sql:exact=0", "reex_sql:entities=0",
)  # fmt: skip
COLUMNS = (
    BoardColumn("tokens a leaf", "decoded_per_leaf", "number"),
    BoardColumn("different answers", "unique"),
    BoardColumn("groups without variance", "zero_variance"),
)


@dataclass(frozen=True)
class TreeMethodSettings:
    """How much is run, and where the page goes."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each arm."""
    tool_budget: str = "50k"
    """Decoded tokens of each run on `calculator`."""
    sums_budget: str = "100k"
    """The same on `arithmetic`."""
    threads: int = 1
    """Threads of processor work."""
    out: Path = Path("docs/measured")
    """Folder that is written to."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content."""


def tool(settings: TreeMethodSettings) -> Board:
    """Everything that can be trained with turns."""
    chosen = arms((*FLAT, *ONE_TURN, *TURNS), (*KNOBS, *TURN_KNOBS))
    on = Conditions("calculator", amount(settings.tool_budget), eval_every=10)
    return Board(
        "tree-methods-tool", compare(chosen, on, settings.seeds, Shelf(settings.cache, TrainRunner())),
        "Each method is trained as its recipe puts it together, with its own credit and objective. The tool fails now "
        "and then. `reex_sql` has the parts of its reward that only `sql` measures switched off.",
        COLUMNS, heading="A tool that fails",
    )  # fmt: skip


def sums(settings: TreeMethodSettings) -> Board:
    """Those of one turn, and mars2, whose attempts are whole answers."""
    chosen = arms((*FLAT, *ONE_TURN, "mars2"), KNOBS)
    on = Conditions("arithmetic", amount(settings.sums_budget), eval_every=10)
    return Board(
        "tree-methods-sums", compare(chosen, on, settings.seeds, Shelf(settings.cache, TrainRunner())),
        "`mars2` trains two policies and is judged by the first; `ettrl` and `echo` see no labels.",
        COLUMNS, heading="Chained sums",
    )  # fmt: skip


def main(settings: TreeMethodSettings) -> None:
    """Write tree-methods.md with its figures and numbers."""
    torch.set_num_threads(settings.threads)
    boards = [tool(settings), sums(settings)]
    write_page(
        settings.out / "tree-methods.md", "All tree methods at one budget", boards,
        "python -m studies.tree_methods",
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(run_study("tree_methods", TreeMethodSettings, main, __doc__))
