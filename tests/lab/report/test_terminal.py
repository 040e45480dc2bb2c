"""Terminal output: curves where they belong, numbers as people read them, text never read as markup."""

import io

import pytest
from rich.console import Console

from rolltree.compare.report import (
    Chart,
    Page,
    PlotSeries,
    ReportFinding,
    ReportTable,
    draw,
    duration,
    print_page,
    shown,
    sparkline,
)


def chart(y, **more):
    return Chart("t", "tokens", "y", [PlotSeries("a", list(range(len(y))), y)], **more)


def test_a_rising_line_rises():
    lines = draw(chart([0.0, 0.5, 1.0]), width=40, height=6).plain.splitlines()
    body = [line.split("│")[1] for line in lines[:6]]
    first = [next(i for i, c in enumerate(row) if c != " ") for row in body]
    assert first == sorted(first, reverse=True)
    assert body[0].rstrip()[-1] != " "
    assert "2 tokens" in lines[6]
    assert "━ a" in lines[7]


def test_a_jump_has_no_holes():
    body = [line.split("│")[1] for line in draw(chart([0, 0, 1, 1]), width=30, height=8).plain.splitlines()[:8]]
    assert all(row.strip() for row in body)


def test_flat_single_and_empty_charts():
    assert "━ a" in draw(chart([0.5, 0.5])).plain
    assert "━ a" in draw(chart([0.5])).plain
    assert draw(Chart("t", "x", "y", [])).plain == "nothing was measured"


def test_sparkline():
    assert sparkline([0, 1, 2, 3]) == "▁▃▆█"
    assert sparkline([1, float("nan"), 1]) == "▁ ▁"
    assert sparkline([float("nan")]) == ""


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.4131, "share", "41.3 %"), (284_000, "count", "284k"), (1_500_000, "count", "1.5M"), (12, "count", "12"),
        (0.012345, "number", "0.01235"), (200, "seconds", "3 min 20 s"), (None, "share", "–"),
        (float("nan"), "number", "–"),
    ],
)  # fmt: skip
def test_numbers_as_people_read_them(value, kind, text):
    assert shown(value, kind) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0.4 s"), (59.6, "1 min"), (61, "1 min 1 s"), (120, "2 min"), (3700, "1 h 1 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_text_is_not_markup():
    out = io.StringIO()
    page = Page(
        "[red]title", "[bold]lead", grids=[ReportTable("[b]g", ["[b]c", "d"], [["[red]x[/red]", "1"]])],
        findings=[ReportFinding("worse", "worse: [b]words")], charts=[chart([0.0, 1.0])],
    )  # fmt: skip
    print_page(page, Console(file=out, width=80))
    for text in ("[red]title", "[bold]lead", "[b]g", "[red]x[/red]", "[b]words"):
        assert text in out.getvalue()


COLUMNS = ["recipe", "pass@1", "pass@8", "pass@1 on the way", "tokens to 59.7 %", "seconds to 59.7 %", "time per run"]
ROWS = [
    [name, "88.3 ± 1.5 %", "97.9 ± 5.8 %", "67.6 ± 8.0 %", "17k (13k to 22k)", "6.4 s", "12 min 20 s"]
    for name in ("grpo", "arpo(first=16)", "arpo")
]


@pytest.mark.papers("arpo")
@pytest.mark.parametrize("width", [80, 120])
def test_every_number_of_a_table_stands_whole_on_a_screen(width):
    out = io.StringIO()
    lines = [PlotSeries(row[0], [0, 1, 2], [0.1, 0.2 * i, 0.3 * i]) for i, row in enumerate(ROWS, 1)]
    page = Page("t", "l", grids=[ReportTable("At the budget", COLUMNS, ROWS, "A note.")],
                charts=[Chart("c", "tokens", "pass@1", lines, percent=True)])  # fmt: skip
    print_page(page, Console(file=out, width=width, color_system=None))
    said = out.getvalue().splitlines()
    assert max(map(len, map(str.rstrip, said))) <= width
    for row in ROWS:
        mine = [line for line in said if line.startswith(f"{row[0]} ")]
        assert all(any(cell in line for line in mine) for cell in row)
    assert sum("A note." in line for line in said) == 1
    # Without colours the letters tell the lines apart.
    legend = next(line for line in said if "A grpo" in line)
    assert "B arpo(first=16)   C arpo" in legend
    drawn = "".join(line.split("│")[1] for line in said if "│" in line)
    assert all(drawn.count(letter) >= 2 for letter in "ABC")
