"""Boards: every method of a kind in one table at one budget, with a panel of its curve and the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rolltree.lab.compare import Comparison
from rolltree.lab.report import shown
from rolltree.lab.trace import write_json
from studies.board_figure import figure
from studies.board_table import ENOUGH, BoardColumn, steps_until, table

SAID = "## What came out"


@dataclass(frozen=True, slots=True)
class Board:
    """One comparison as a page tells it."""

    name: str
    """Stem of its figure's and its numbers' files."""
    result: Comparison
    about: str
    """What its arms are, in sentences."""
    columns: tuple[BoardColumn, ...] = ()
    heading: str = ""
    remark: str = ""
    """What to know when reading the table."""


def write_page(path: Path, title: str, boards: Sequence[Board], command: str) -> Path:
    """Write a page and, beside it, a figure and the numbers of each board.

    What a person wrote below the heading "What came out" of a page that stands there is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for board in boards:
        (path.parent / f"{board.name}.svg").write_text(figure(board.result), encoding="utf-8")
        write_json(path.parent / f"{board.name}.json", numbers(board))
    said = path.read_text(encoding="utf-8").partition(SAID)[2].strip() if path.is_file() else ""
    path.write_text(text(title, boards, command, said), encoding="utf-8")
    return path


def text(title: str, boards: Sequence[Board], command: str, said: str = "") -> str:
    """The page as Markdown."""
    parts = [f"# {title}"]
    for board in boards:
        parts += section(board)
    names = " and ".join(f"`{board.name}.json`" for board in boards)
    parts.append(f"Repeat it with `{command}`; the numbers behind the figures are in {names}.")
    return "\n\n".join([*parts, *([SAID, said] if said else [])]) + "\n"


def section(board: Board) -> list[str]:
    """Conditions, table and figure of one board."""
    result = board.result
    on, base = result.conditions, result.arms[0].label
    start = np.mean([t.curve("pass@1")[1][0] for a in result.arms for t in result.of(a.label)])
    seeds = ", ".join(map(str, result.seeds))
    holm = (
        f"Verdicts are against {base}; the ends of an interval stand where Holm's procedure puts them over "
        f"{len(result.contrasts)} comparisons, so that all of them together err as seldom as one. "
    )
    return [
        *([f"## {board.heading}"] if board.heading else []),
        f"Task `{on.task}`{'' if on.level is None else f' up to level {on.level}'}, from the embedded policy: "
        f"{shown(on.budget, 'count')} decoded tokens each (rollouts that only measure are paid for), seeds {seeds}, "
        f"judged on {on.eval_items} held-out items with {on.eval_samples} samples each. They start from "
        f"{shown(float(start), 'share')}. {board.about} Numbers are means over seeds {_spread(result)}; differences "
        f"are paired by seed. Costs are medians over seeds to {shown(result.target, 'share')}, half of the largest "
        "gain any arm made.",
        table(result, board.columns),
        ((holm if len(result.seeds) >= ENOUGH else "") + board.remark).strip(),
        f"![Held-out pass@1 against decoded tokens, a panel for each arm]({board.name}.svg)",
        f"Blue is the arm, grey {base}; the band runs from the lowest to the highest seed.",
    ]


def numbers(board: Board) -> dict[str, list[dict[str, object]]]:
    """Evaluations and means of every run."""
    result = board.result
    return {
        arm.label: [
            {"seed": t.seed, "rows": [dict(r) for r in t.evaluations],
             "steps": steps_until(t, t.cost("decoded")), **{c.metric: t.mean(c.metric) for c in board.columns}}
            for t in result.of(arm.label)
        ]
        for arm in result.arms
    }  # fmt: skip


def _spread(result: Comparison) -> str:
    if len(result.seeds) == 1:
        return "(here one seed: nothing can be said about chance)"
    if len(result.seeds) < ENOUGH:
        return "with the lowest and the highest, too few for an interval"
    return f"± half of a {100 * result.confidence:g} % t interval"
