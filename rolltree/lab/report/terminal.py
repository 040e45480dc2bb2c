"""A page in the terminal: verdicts, the first chart, tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rolltree.lab.report.canvas import draw
from rolltree.lab.report.page import Page, ReportTable

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
        console.print()
        console.print(table(grid))
    if page.findings:
        console.print()
    for finding in page.findings:
        words = finding.words.removeprefix(finding.outcome)
        console.print(Text.assemble((finding.outcome, _STYLE[finding.outcome]), words))


def table(grid: ReportTable) -> Table:
    """A grid as a table that fits any width: texts are never read as markup."""
    made = Table(
        title=Text(grid.title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
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
