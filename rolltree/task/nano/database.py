"""A tiny SQLite database that only answers: read-only, deterministic, and bounded in work, rows and text."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

STEPS = 20_000
"""Virtual-machine instructions a query may take: a time limit that does not depend on the machine."""
ROWS = 20
"""Rows a query may return."""
FUNCTIONS = frozenset({"abs", "avg", "count", "length", "lower", "max", "min", "round", "sum", "total", "upper"})
"""Functions a query may call; none of them is random or reads the clock."""
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 10_000, sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4_000, sqlite3.SQLITE_LIMIT_COLUMN: 32,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50, sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 8, sqlite3.SQLITE_LIMIT_VDBE_OP: 10_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}  # fmt: skip
"""What one step and one row may cost, and what compiling may: the steps are counted only where each of them is small.
A result holds at most `ROWS` times 32 values of 10,000 bytes."""

Rows = tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class SqlTable:
    """Name, columns and rows; the first column is text, the others are integers."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


class QueryError(ValueError):
    """A query that was refused, failed or went over a limit; the message is SQLite's own or names the limit."""


def query(tables: Sequence[SqlTable], text: str) -> Rows:
    """Run one SELECT on fresh tables and return its rows."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for table in tables:
            connection.execute(f"create table {table.name} ({','.join(table.columns)})")
            marks = ",".join("?" * len(table.columns))
            connection.executemany(f"insert into {table.name} values ({marks})", table.rows)
        connection.execute("pragma temp_store = memory")
        for limit, most in LIMITS.items():
            connection.setlimit(limit, most)
        connection.set_authorizer(_authorizer(frozenset(table.name for table in tables)))
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


def _authorizer(names: frozenset[str]) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """Selecting is allowed, reading these tables, and the functions of the list; SQLite's own tables are not."""

    def decide(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
        if action == sqlite3.SQLITE_FUNCTION:
            allowed = str(second).lower() in FUNCTIONS
        elif action == sqlite3.SQLITE_READ:
            allowed = first in names
        else:
            allowed = action == sqlite3.SQLITE_SELECT
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return decide


def show(rows: Rows, limit: int) -> str:
    """Rows as one line, `34` or `ki 34,mo 12`, cut to a length."""
    text = ",".join(" ".join(map(_cell, row)) for row in rows) or "none"
    return text if len(text) <= limit else text[: limit - 2] + ".."


def _cell(value: object) -> str:
    """Whole floats and integers look alike, because SQLite's averages are floats."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace("\n", " ")
