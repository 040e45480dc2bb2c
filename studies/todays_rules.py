"""A stored page of a table brought up to today's rules: what it says of its numbers, which stay."""

from __future__ import annotations

from collections.abc import Mapping

from studies.stored_table import StoredTable
from studies.table_page import apart_section, lead

WRITTEN, APART = "Written by `python -m studies.board", "\n## Where a difference could come from\n"


def brought_up(text: str, table: StoredTable, apart: Mapping[str, str]) -> str:
    """The page with today's lead, verdicts and account of where differences could come from."""
    out: list[str] = []
    column, at = "", -1
    for line in text.partition(APART)[0].rstrip("\n").split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if line.startswith("## "):
            column = line.removeprefix("## ")
        if cells[:1] == ["row"]:
            at = cells.index("verdict") if "verdict" in cells else -1
        if line.startswith(WRITTEN):
            out.append(lead(table.plan.name, sum(c.test is not None for c in table.cells)).rstrip("\n"))
        elif at >= 0 and cells and (stored := table.at(cells[0], column)) is not None and stored.test is not None:
            cells[at] = stored.said
            out.append("| " + " | ".join(cells) + " |")
        else:
            out.append(line)
    return "\n".join([*out, *apart_section(apart)]) + "\n"
