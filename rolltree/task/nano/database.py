"""A tiny SQLite database that only answers: read-only, deterministic, and bounded in work, rows and text."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

STEPS = 20_000
"""Virtual-machine instructions a query may take: a time limit that does not depend on the machine."""
ROWS = 20
"""Rows a query may return."""
FUNCTIONS = frozenset({"abs", "avg", "count", "length", "lower", "max", "min", "round", "sum", "total", "upper"})
"""Functions a query may call; none of them is random or reads the clock."""
ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})

Rows = tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Name, columns and rows; the first column is text, the others are integers."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


class QueryError(ValueError):
    """A query that was refused, failed or went over a limit; the message is SQLite's own or names the limit."""


def query(tables: Sequence[Table], text: str) -> Rows:
    """Run one SELECT on fresh tables and return its rows."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for table in tables:
            connection.execute(f"create table {table.name} ({','.join(table.columns)})")
            marks = ",".join("?" * len(table.columns))
            connection.executemany(f"insert into {table.name} values ({marks})", table.rows)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: 1, STEPS)
        rows = tuple(connection.execute(text).fetchmany(ROWS + 1))
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        message = "too much work" if "interrupted" in str(error) else str(error)
        raise QueryError(message) from None
    finally:
        connection.close()
    if len(rows) > ROWS:
        raise QueryError("too many rows")
    return rows


def _authorize(action: int, table: str | None, name: str | None, database: str | None, trigger: str | None) -> int:
    """Reading is allowed, and the functions of the list."""
    known = action == sqlite3.SQLITE_FUNCTION and str(name).lower() in FUNCTIONS
    return sqlite3.SQLITE_OK if known or action in ALLOWED else sqlite3.SQLITE_DENY


def show(rows: Rows, limit: int) -> str:
    """Rows as one line, `34` or `ki 34,mo 12`, cut to a length."""
    text = ",".join(" ".join(map(_cell, row)) for row in rows) or "none"
    return text if len(text) <= limit else text[: limit - 2] + ".."


def _cell(value: object) -> str:
    """Whole floats and integers look alike, because SQLite's averages are floats."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace("\n", " ")
