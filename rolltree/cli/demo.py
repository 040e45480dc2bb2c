"""`rolltree demo`: the main job in a few minutes, on the embedded policy and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rolltree.cli.common import console, parse
from rolltree.lab.compare import CompareConfig, main

ABOUT = """Train the embedded policy on chained sums with GRPO and with RLOO at the same budget of decoded tokens.

Prints learning curves and a table, and writes a report for any browser. Run it again and it goes on where it was.
"""


@dataclass(frozen=True)
class DemoArguments:
    """The demo's size. The defaults end within ten minutes on two cores."""

    out: Path = Path("runs/demo")
    """Where report.html and the runs go."""
    task: str = "arithmetic"
    """A task's name (rolltree tasks)."""
    budget: str = "150k"
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
        what = f"{asked.seeds} seeds each, {asked.budget} decoded tokens a run, judged on held-out items"
        out.print(f"GRPO and RLOO train the embedded policy on {asked.task}: {what}.\n", highlight=False)
    code = main(
        CompareConfig(
            recipes=("grpo", "rloo"),
            task=asked.task,
            budget=asked.budget,
            seeds=asked.seeds,
            first_seed=asked.seed,
            out=asked.out,
            cache=asked.out / "cache",
            json=asked.json,
        )
    )
    if code == 0 and not asked.json:
        out.print("\nNext: rolltree rollout grpo --task arithmetic, then rolltree train grpo --help", style="dim")
    return code
