"""`rolltree modes`: one prompt over training; branches that appear and die."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rolltree.analysis.decisive import percent
from rolltree.analysis.modes import ShownModes, every_step, leading, life, picture, prompts_over_time, shown_modes
from rolltree.analysis.source import open_source
from rolltree.analysis.text import pieces_of
from rolltree.cli.common import at_least, console, emit, first_name, grid, parse
from rolltree.errors import RolltreeError
from rolltree.visible import visible

ABOUT = """Follow one prompt over training: its rollouts of all saved steps merged by
prefix, and the share of each step that goes down each branch.

  rolltree modes runs/first                       the prompt asked at most steps
  rolltree modes runs/first --list                prompts to choose from
  rolltree modes runs/first --tree countdown-17   the prompt of this tree

Runs that ask prompts again have them: train with --items N and --forests-every.
"""
COLUMNS = 6
"""Steps in the table; more are thinned out evenly."""


@dataclass(frozen=True)
class ModesArguments:
    """What to follow."""

    run: Path | None = None
    """A run folder, or a folder with a forest for each step."""
    tree: str = ""
    """A tree of the prompt; the prompt asked at the most steps when left out."""
    list: bool = False
    """List the prompts that can be followed instead."""
    top: int = 12
    """How many branches to print."""
    model: str = ""
    """Model whose tokenizer shows the text; the run's own when left out."""
    json: bool = False
    """Print one JSON document and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Parse, merge, print."""
    name, rest = first_name(arguments)
    asked = parse(ModesArguments, ["--run", name, *rest] if name else rest, "modes", ABOUT)
    if asked.run is None:
        raise RolltreeError("which run? rolltree modes RUN; give a run folder")
    at_least(1, top=asked.top)
    source = open_source(asked.run, asked.model)
    archive, pieces = every_step(source), pieces_of(source)
    if asked.list:
        rows = [{"tree": p.tree, "steps": p.steps, "prompt": p.text} for p in prompts_over_time(archive, pieces)]
        if asked.json:
            emit(rows)
        else:
            console().print(grid("Prompts at two saved steps or more", rows))
        return 0
    found = shown_modes(archive, pieces, asked.tree)
    if asked.json:
        emit({"tree": found.tree, "prompt": found.prompt, **picture(found)})
    else:
        _show(found, asked.top, pieces.note)
    return 0


def _show(found: ShownModes, top: int, note: str) -> None:
    out, steps = console(), found.timeline.steps
    out.print(Text(visible(f"{found.tree}: {found.prompt}"), style="bold"))
    if note:
        out.print(Text(visible(note), style="dim"))
    at = sorted({round(i * (len(steps) - 1) / (min(COLUMNS, len(steps)) - 1)) for i in range(COLUMNS)})
    at = [i for i in at if i < len(steps)]
    rows: list[dict[str, object]] = []
    for place in leading(found, top):
        mode = found.timeline.modes[place]
        text = found.texts[place].replace("\n", "⏎")
        before = "…" + found.texts[mode.parent][-8:].replace("\n", "⏎") if mode.parent > 0 else ""
        shares = {f"step {steps[i]}": percent(mode.share[i]) if mode.leaves[i] else "–" for i in at}
        rows.append({"branch": f"{before}{text}"[:30], "life": life(mode, steps), **shares})
    out.print(grid("Share of a step's rollouts, the branches that changed most first", rows))
