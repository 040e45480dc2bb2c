"""A page as one self-contained HTML file: style, script, data and plotting library inside, nothing fetched.

All text is escaped, also inside the data block, so what a model or a tool wrote can never become markup.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from html import escape as _escape
from importlib.resources import files
from pathlib import Path

from rolltree.analysis.line_colours import task_colour
from rolltree.compare.report.branch import ReportBranch, ReportTree
from rolltree.compare.report.page import Chart, Page, PlotSeries, ReportFinding, ReportTable
from rolltree.compare.stats import Outcome
from rolltree.tree.store.atomic import new_file

_MARK = {
    "holds": "✓", "worse": "✗", "claim excluded": "✗", "no effect above x": "✗", "no difference found": "≈",
    "void": "∅",
}  # fmt: skip


def write_html(page: Page, path: Path) -> Path:
    """Render a page to a file; returns its path."""
    with new_file(path, overwrite=True) as sink:
        sink.write(html(page))
    return path


def html(page: Page) -> str:
    """The whole document."""
    charts = "".join(_chart(i, chart) for i, chart in enumerate(page.charts))
    body = f"""
<header>
<div class="bar"><span class="mark">rolltree</span>
<button id="theme" type="button" title="light or dark">◐</button></div>
<h1>{_text(page.title)}</h1>
<p class="lead">{_text(page.lead)}</p>
{_facts(page.facts)}
</header>
<main>
{_findings(page.findings)}
{f'<section class="charts">{charts}</section>' if charts else ""}
{"".join(_tree(tree) for tree in page.trees)}
{"".join(_grid(grid) for grid in page.grids)}
{_commands(page.commands)}
{_notes(page.notes)}
</main>
<footer>{" · ".join(f"{_text(name)} {_text(value)}" for name, value in page.versions)}</footer>
"""
    scripts = _plots(page.charts) if page.charts else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data: blob:">
<title>{_text(page.title)}</title>
<style>{_asset("style.css")}</style>
</head>
<body>{body}
{scripts}
<script>{_asset("page.js")}</script>
</body>
</html>
"""


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    cells = "".join(
        f"<div><dt>{_text(k)}</dt><dd>{_dot(v) if k == 'task' else ''}{_text(v)}</dd></div>" for k, v in facts
    )
    return f'<dl class="facts">{cells}</dl>' if cells else ""


def _dot(task: str) -> str:
    """A mark in the task's colour, which it has in the viewer and in all figures too."""
    return f'<i class="dot" style="background:{task_colour(task)}" aria-hidden="true"></i>'


def _tone(outcome: Outcome) -> str:
    """The class of style.css: good, bad, or open."""
    return {"holds": "good", "no difference found": "open", "void": "open"}.get(outcome, "bad")


def _findings(findings: Sequence[ReportFinding]) -> str:
    if not findings:
        return ""
    items = "".join(
        f'<li class="{_tone(f.outcome)}"><b><i>{_MARK[f.outcome]}</i>{_text(f.outcome)}</b>'
        f"<p>{_text(f.words.removeprefix(f.outcome).lstrip(': '))}</p></li>"
        for f in findings
    )
    return f'<section><h2>Verdict</h2><ul class="findings">{items}</ul></section>'


def _chart(index: int, chart: Chart) -> str:
    note = f"<figcaption>{_text(chart.note)}</figcaption>" if chart.note else ""
    return (
        f'<figure><h2>{_text(chart.title)}</h2><div class="plot" id="plot{index}" role="group" '
        f'aria-label="{_text(chart.title)}"><noscript>Drawing needs JavaScript; the tables hold the numbers.</noscript>'
        f"</div>{note}</figure>"
    )


def _grid(grid: ReportTable) -> str:
    head = "".join(f'<th scope="col">{_text(c)}</th>' for c in grid.columns)
    rows = "".join(
        "<tr>" + f'<th scope="row">{_text(row[0])}</th>' + "".join(f"<td>{_text(c)}</td>" for c in row[1:]) + "</tr>"
        for row in grid.rows
    )
    note = f'<p class="note">{_text(grid.note)}</p>' if grid.note else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<section><h2>{_text(grid.title)}</h2><div class="scroll">{table}</div>{note}</section>'


def _tree(tree: ReportTree) -> str:
    return (
        f'<section><h2>{_text(tree.title)}</h2><div class="scroll tree">{_branch(tree.root)}</div>'
        f'<p class="note">{_text(tree.note)}</p></section>'
    )


def _branch(branch: ReportBranch) -> str:
    """A branch that closes and opens without a script; a leaf has nothing to close."""
    words = "".join(
        f'<span class="{_escape(role)}">{"⟵ " if role == "env" else ""}{_escape(text.strip())}</span> '
        for role, text in branch.words
    )
    if not branch.below:
        mark = "✓ right" if branch.right else "✗ wrong"
        return f'<div class="leaf">{words}<b class="{mark[2:]}">{mark}</b> <i>{_text(branch.end)}</i></div>'
    counts = f"◆ {len(branch.below)} ways, {branch.right} of {branch.leaves} right"
    why = "".join(f'<p class="why">{_text(reason)}</p>' for reason in branch.reasons)
    below = "".join(map(_branch, branch.below))
    return f'<details open><summary>{words}<b>{counts}</b></summary>{why}<div class="below">{below}</div></details>'


def _commands(commands: Sequence[tuple[str, str]]) -> str:
    if not commands:
        return ""
    items = "".join(
        f'<p>{_text(what)}</p><div class="command"><pre>{_escape(line)}</pre>'
        '<button type="button" class="copy" title="copy">copy</button></div>'
        for what, line in commands
    )
    return f"<section><h2>Repeat it</h2>{items}</section>"


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(n)}</li>" for n in notes)
    return f'<section><h2>How to read this</h2><ul class="notes">{items}</ul></section>' if items else ""


def _plots(charts: Sequence[Chart]) -> str:
    data = json.dumps([_data(c) for c in charts], allow_nan=False, separators=(",", ":"))
    safe = data.replace("<", "\\u003c").replace("&", "\\u0026")
    return (
        f'<script type="application/json" id="charts">{safe}</script>\n'
        f'<script type="text/plain" id="plotly">{_plotly()}</script>'
    )


def _data(chart: Chart) -> dict[str, object]:
    return {
        "x": chart.x_title,
        "y": chart.y_title,
        "percent": chart.percent,
        "target": chart.target,
        "series": [_line(s) for s in chart.series],
    }


def _line(series: PlotSeries) -> dict[str, object]:
    return {
        "name": series.name,
        "x": _short(series.x),
        "y": _short(series.y),
        "low": _short(series.low),
        "high": _short(series.high),
        "runs": [{"x": _short(x), "y": _short(y)} for x, y in series.runs],
    }


def _short(values: Sequence[float]) -> list[float | None]:
    """Six digits are more than a screen shows; infinities (an interval of one seed) become gaps."""
    return [float(f"{v:.6g}") if abs(v) < 1e300 else None for v in map(float, values)]


@cache
def _plotly() -> str:
    """The plotting library, compressed: the browser unpacks it, and the page stays small."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()


@cache
def _asset(name: str) -> str:
    return files("rolltree.compare.report").joinpath(name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    """Text as text; a number and its sign stay on one line."""
    return _escape(text).replace(" %", "\u00a0%").replace(" points", "\u00a0points")
