"""What version 0.1 called the fields of a node. New files have today's names; old files are read through here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rolltree.tree.store.arrow import ArrowTable

NODE_FIELDS = {"logq": "sampling_logprob", "trains": "trainable", "fate": "usage"}
"""Name in files of 0.1 → name today."""
USAGES = {"dropped: nothing to teach": "dropped: no credit"}
"""What 0.1 said of a leaf → what is said today."""
_BEFORE = {today: before for before, today in NODE_FIELDS.items()}


def todays_usage(word: Any) -> Any:
    """What is said today of a leaf of which a file says this."""
    return USAGES.get(word, word)


def as_stored(name: str, stored: Iterable[str]) -> str | None:
    """The name under which a file with these columns holds a field; None where it has none."""
    found = {*stored}
    return next((n for n in (name, _BEFORE.get(name, name)) if n in found), None)


def todays_table(table: ArrowTable) -> ArrowTable:
    """A table of nodes with today's column names."""
    return table.rename_columns([NODE_FIELDS.get(name, name) for name in table.column_names])


def todays_row(row: dict[str, Any]) -> dict[str, Any]:
    """A JSON object of a node with today's keys."""
    if NODE_FIELDS.keys() & row.keys():
        row = {NODE_FIELDS.get(name, name): value for name, value in row.items()}
    usage = row.get("usage")
    return row | {"usage": USAGES[usage]} if isinstance(usage, str) and usage in USAGES else row
