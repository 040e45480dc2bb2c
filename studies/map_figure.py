"""A table over two conditions as a figure: a coloured field for each cell, one block of columns for each second
condition."""

from __future__ import annotations

from html import escape

from studies.exact.chart import DARK
from studies.stored_table import StoredCell, StoredTable

LEFT, WIDE, TALL, TOP, GAP, COST = 108, 96, 38, 74, 14, 74
BEST = "#1a7f37"
BAD = "#b3261e"


def map_figure(table: StoredTable) -> str:
    """An SVG: mean and interval, the difference where the family tells it apart, and how many runs collapsed."""
    blocks: dict[str, list[str]] = {}
    for column in table.columns:
        blocks.setdefault(column.partition(", ")[2], []).append(column)
    at: dict[str, int] = {}
    x = LEFT
    for columns in blocks.values():
        for column in columns:
            at[column], x = x, x + WIDE
        x += GAP
    width, height = x + COST, TOP + TALL * len(table.rows) + 34
    highest = max(cell.mean.estimate for cell in table.cells)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        DARK,
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(table.plan.title)}</text>',
    ]
    for block, columns in blocks.items():
        middle = (at[columns[0]] + at[columns[-1]] + WIDE) / 2
        out.append(f'<text x="{middle:.0f}" y="44" text-anchor="middle" font-weight="bold">{escape(block)}</text>')
        for column in columns:
            name = escape(column.partition(", ")[0])
            out.append(f'<text x="{at[column] + WIDE / 2:.0f}" y="63" text-anchor="middle">{name}</text>')
    out.append(f'<text x="{x}" y="63">processor s</text>')
    for i, label in enumerate(table.rows):
        y = TOP + i * TALL
        out.append(f'<text x="{LEFT - 8}" y="{y + 22}" text-anchor="end">{escape(label)}</text>')
        cells = [c for column in table.columns if (c := table.at(label, column)) is not None]
        for cell in cells:
            out += _field(cell, at[cell.column], y, cell.mean.estimate / highest)
        spent = [c.costs.get("time/processor") or 0.0 for c in cells]
        out.append(f'<text x="{x + 4}" y="{y + 22}">{sum(spent) / len(spent):.0f}</text>')
    seeds = " or ".join(map(str, sorted({len(c.values) for c in table.cells})))
    out.append(
        f'<text x="8" y="{height - 12}" fill="#57606a">Held-out pass@1 in %, mean ± half of a 95 % interval over '
        f"{seeds} seeds. Framed: told apart from {escape(table.rows[0])} over all comparisons (green ahead, red "
        "behind), with the difference.</text>"
    )
    return "\n".join([*out, "</svg>"]) + "\n"


def _field(cell: StoredCell, x: int, y: int, share: float) -> list[str]:
    blue = f"hsl(212 80% {97 - 42 * max(0.0, min(1.0, share)):.0f}%)"
    ahead = cell.verdict not in ("", "void", "no difference found")
    frame, bold = "", ""
    effect = None if cell.test is None else cell.test.effect.estimate
    under = f'<tspan fill="{BAD}">{cell.collapsed}/{len(cell.values)} collapsed</tspan>' if cell.collapsed else ""
    if ahead and effect is not None:
        colour, bold = (BEST if effect > 0 else BAD), ' font-weight="bold"'
        frame = f' stroke="{colour}" stroke-width="2"'
        under = f"{100 * effect:+.1f}" + (f", {under}" if under else "")
    elif cell.verdict == "void" and cell.idle and not under:
        under = "never acted"
    half = f" ± {50 * (cell.mean.high - cell.mean.low):.1f}" if len(cell.values) > 1 else ""
    middle = x + WIDE / 2
    return [
        f'<rect x="{x + 2}" y="{y + 2}" width="{WIDE - 4}" height="{TALL - 4}" rx="3" fill="{blue}"{frame}/>',
        f'<text x="{middle:.0f}" y="{y + (18 if under else 23)}" text-anchor="middle"{bold}>'
        f"{100 * cell.mean.estimate:.1f}{half}</text>",
        f'<text x="{middle:.0f}" y="{y + 31}" text-anchor="middle" font-size="10">{under}</text>' if under else "",
    ]
