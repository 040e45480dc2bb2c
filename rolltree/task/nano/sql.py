"""Text-to-SQL over a generated SQLite database, with execution as a tool and by execution match.

`emp(name,age,pay) max pay if age>30?` is answered by a query on one line; the database answers with the rows or the
error; `ok` submits the latest query. A submitted query is right when it gives the rows of the reference query on the
database of the rollout and on a second one that the policy never sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import ClassVar

from rolltree.task.items import check_level, digest, stream
from rolltree.task.nano.database import QueryError, Rows, SqlTable, query, show
from rolltree.task.nano.lookup import NAMES
from rolltree.task.protocol import Item, Reply, Split, Verdict

TABLES = {"emp": ("age", "pay", "rank"), "pet": ("age", "kg", "legs"), "car": ("cost", "seats", "kmh")}
LEVELS = (1, 2, 3, 4)
"""1 one aggregate; 2 a condition or an order; 3 two conditions, or a condition and an order; 4 a sub-query."""
SHOWN = 16
"""Characters of a result the policy is shown."""


@dataclass(frozen=True, slots=True)
class Session:
    """The latest query and whether it was submitted."""

    query: str = ""
    submitted: bool = False


@dataclass(frozen=True)
class Sql:
    """Write a query, see what it gives, submit it or write another."""

    measures: ClassVar[frozenset[str]] = frozenset({"entities", "exact", "runs", "visible"})
    level: int = 3
    name: str = field(default="sql", init=False)
    stop: tuple[str, ...] = field(default=("\n",), init=False)
    max_tokens: int = 96
    max_turns: int = 4

    def __post_init__(self) -> None:
        check_level(self.name, self.level, LEVELS)

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Questions over tables with random rows; the same question with other rows stays in its split."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    def start(self, item: Item) -> tuple[Session, str | None]:
        """No query yet."""
        return Session(), f"{item.id}/start"

    async def step(self, item: Item, state: Session, text: str) -> Reply:
        """Execute the query, or submit the latest one."""
        command = text.rstrip("\n")
        if command == "ok":
            return Reply("", replace(state, submitted=True), done=True, state_key=f"{item.id}/{digest(state.query)}!")
        state = Session(command)
        key = f"{item.id}/{digest(command)}"
        try:
            shown = show(query(tables(item), command), SHOWN)
        except QueryError as error:
            return Reply(f"err {str(error)[:SHOWN]}\n".replace("\n", " ").rstrip() + "\n", state, False, 0.0, key, True)
        return Reply(f"{shown}\n", state, state_key=key)

    async def verify(self, item: Item, state: Session, text: str) -> Verdict:
        """Execution match on both databases; `runs` says whether the query executes, `exact` whether it is the
        reference's text, `entities` how far it names the same tables and columns. The answer is its rows."""
        parts = {"runs": 0.0, "visible": 0.0, "exact": 0.0, "entities": 0.0}
        if not state.submitted:
            return Verdict(0.0, parts, why="no query was submitted")
        parts |= {"exact": float(_plain(state.query) == _plain(item.answer)), "entities": _entities(item, state.query)}
        try:
            given = [_rows(state.query, tables(item, hidden)) for hidden in (False, True)]
        except QueryError as error:
            return Verdict(0.0, parts, why=f"the query fails: {error}")
        right = [_rows(item.answer, tables(item, hidden)) for hidden in (False, True)]
        parts |= {"runs": 1.0, "visible": float(given[0] == right[0])}
        why = "" if given == right else "the rows differ" + (" on the hidden rows" if given[0] == right[0] else "")
        return Verdict(float(given == right), parts, show(given[0], 200), why)

    def act(self, item: Item, state: Session, rng: Random, noise: float = 0.0) -> str:
        """The reference query, then `ok`; mistakes change an operator, a column, an aggregate or its spelling, and a
        query that fails is corrected with probability 1 - noise."""
        if state.query:
            try:
                query(tables(item), state.query)
            except QueryError:
                return "ok\n" if rng.random() < noise else f"{item.answer}\n"
            return "ok\n"
        return f"{_mistaken(item, rng) if rng.random() < noise else item.answer}\n"


def tables(item: Item, hidden: bool = False) -> tuple[SqlTable, ...]:
    """The item's database, or the one only the verifier sees."""
    name, columns = item.meta["table"], tuple(item.meta["columns"])
    rows = item.meta["hidden" if hidden else "rows"]
    return (SqlTable(name, columns, tuple(tuple(row) for row in rows)),)


def _plain(text: str) -> str:
    """A query's words and signs in lower case, without what changes nothing: spaces and the last semicolon."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower().rstrip("; ")))


def _entities(item: Item, text: str) -> float:
    """Overlap (Jaccard) of the tables and columns named by a query with those of the reference."""
    known = {item.meta["table"], *item.meta["columns"]}
    given, right = (set(re.findall(r"\w+", one.lower())) & known for one in (text, item.answer))
    return len(given & right) / len(given | right)


def _rows(text: str, database: tuple[SqlTable, ...]) -> Rows:
    """A query's rows in comparable form: numbers as floats, order kept only where the query orders."""
    rows = tuple(tuple(float(v) if isinstance(v, int | float) else v for v in row) for row in query(database, text))
    return rows if "order by" in text.lower() else tuple(sorted(rows, key=repr))


def _mistaken(item: Item, rng: Random) -> str:
    """The reference query with one plausible mistake."""
    text: str = item.answer
    columns = item.meta["columns"]
    kind = rng.random()
    if kind < 0.3:
        return text.translate(str.maketrans("<>", "><")) if re.search("[<>]", text) else text.replace("max", "min")
    column = rng.choice([name for name in columns if name in text] or [columns[1]])
    if kind < 0.65:
        return re.sub(rf"\b{column}\b", rng.choice([name for name in columns if name != column]), text, count=1)
    if kind < 0.8:
        return text.replace(column, column[:-1], 1)
    return re.sub("max|min|sum|avg|count", lambda _: rng.choice(("max", "min", "sum", "avg")), text, count=1)


def _question(level: int, columns: tuple[str, ...], table: str, rng: Random) -> tuple[str, str]:
    """An English question and its query."""
    name, a, b = columns
    if rng.random() < 0.5:
        a, b = b, a
    bound, symbol = rng.randint(20, 80), rng.choice("<>")
    aggregate = rng.choice(("max", "min", "sum", "avg"))
    order = rng.choice(("most", "least"))
    direction = " desc" if order == "most" else ""
    where = f" where {b}{symbol}{bound}"
    if level == 1:
        return rng.choice(((f"{aggregate} {a}", f"select {aggregate}({a}) from {table}"),
                           ("how many", f"select count(*) from {table}")))  # fmt: skip
    if level == 2:
        return rng.choice(((f"{aggregate} {a} if {b}{symbol}{bound}", f"select {aggregate}({a}) from {table}{where}"),
                           (f"how many {b}{symbol}{bound}", f"select count(*) from {table}{where}"),
                           (f"who {b}{symbol}{bound}", f"select {name} from {table}{where}"),
                           (f"who {order} {a}", f"select {name} from {table} order by {a}{direction} limit 1"),
                           ))  # fmt: skip
    if level == 3:
        other = rng.randint(20, 80)
        both = f"{where} and {a}>{other}"
        return rng.choice(((f"who {b}{symbol}{bound} and {a}>{other}", f"select {name} from {table}{both}"),
                           (f"who {order} {a} if {b}{symbol}{bound}",
                            f"select {name} from {table}{where} order by {a}{direction} limit 1"),
                           ))  # fmt: skip
    inner = f"(select avg({b}) from {table})"
    return rng.choice(((f"who {b}{symbol}avg", f"select {name} from {table} where {b}{symbol}{inner}"),
                       (f"{aggregate} {a} if {b}{symbol}avg",
                        f"select {aggregate}({a}) from {table} where {b}{symbol}{inner}")))  # fmt: skip


def _draw(level: int, rng: Random) -> tuple[str, Item] | None:
    """A schema, a question and two fillings of the table; questions whose answer is empty are drawn again."""
    table = rng.choice(sorted(TABLES))
    columns = ("name", *rng.sample(TABLES[table], 2))
    question, reference = _question(level, columns, table, rng)
    prompt = f"{table}({','.join(columns)}) {question}?\n"
    seen, hidden = (_fill(rng) for _ in range(2))
    meta = {"table": table, "columns": columns, "rows": seen, "hidden": hidden}
    item = Item(f"sql-{digest(prompt + repr(seen))}", prompt, reference, level, meta)
    if any(None in row for hide in (False, True) for row in query(tables(item, hide), reference) or ((None,),)):
        return None
    return prompt, item


def _fill(rng: Random) -> tuple[tuple[object, ...], ...]:
    """Five rows; no number repeats in a column, so that orders have no ties."""
    names = rng.sample(NAMES, 5)
    return tuple(zip(names, rng.sample(range(10, 91), 5), rng.sample(range(10, 91), 5), strict=True))
