"""A page in the terminal: verdicts, the first chart, tables."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rolltree.compare.report.canvas import draw
from rolltree.compare.report.page import Page, ReportTable

GAP = 2
"""Columns between two columns of a table."""
_STYLE = {
    "holds": "bold green", "worse": "bold red", "claim excluded": "bold red", "no effect above x": "bold red",
    "no difference found": "bold yellow", "void": "dim",
}  # fmt: skip


def print_page(page: Page, console: Console, *, charts: int = 1) -> None:
    """Print a page; only the first few charts, as a terminal has little room."""
    console.print()
    console.print(Text(page.title, style="bold"))
    console.print(Text(page.lead, style="dim"))
    width = min(console.width, 100)
    for chart in page.charts[:charts]:
        console.print()
        console.print(Text(chart.title, style="bold"))
        console.print(draw(chart, width))
    for grid in page.grids:
        for part in fitted(grid, console.width):
            console.print()
            console.print(table(part))
    if page.findings:
        console.print()
    for finding in page.findings:
        words = finding.words.removeprefix(finding.outcome)
        console.print(Text.assemble((finding.outcome, _STYLE[finding.outcome]), words))


def fitted(grid: ReportTable, width: int) -> list[ReportTable]:
    """A grid as tables that stand whole in so many columns, each with the names of the rows."""
    widths = [
        max(max(map(len, name.split()), default=0), *(len(row[i]) for row in grid.rows), min(9, len(name))) + GAP
        for i, name in enumerate(grid.columns)
    ]  # fmt: skip
    parts: list[list[int]] = [[0]]
    for i in range(1, len(grid.columns)):
        if len(parts[-1]) > 1 and sum(widths[j] for j in parts[-1]) + widths[i] - GAP > width:
            parts.append([0])
        parts[-1].append(i)
    if len(parts) == 1:
        return [grid]
    return [
        replace(
            grid, title=grid.title if n == 0 else f"{grid.title} (continued)", columns=[grid.columns[i] for i in part],
            rows=[[row[i] for i in part] for row in grid.rows], note=grid.note if n == len(parts) - 1 else "",
        )
        for n, part in enumerate(parts)
    ]  # fmt: skip


def table(grid: ReportTable) -> Table:
    """A grid as a table that fits any width: texts are never read as markup."""
    made = Table(
        title=Text(grid.title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, GAP, 0, 0)
    )
    for i, name in enumerate(grid.columns):
        made.add_column(
            Text(name, style="dim"), justify="left" if i == 0 else "right", overflow="fold", min_width=min(9, len(name))
        )
    for row in grid.rows:
        made.add_row(*(Text(cell) for cell in row))
    if grid.note:
        made.caption = Text(grid.note, style="dim")
        made.caption_justify = "left"
    return made
