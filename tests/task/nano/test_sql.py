"""The query tool only reads, is bounded, and is judged by what queries return."""

import asyncio

import pytest

from rolltree.task.nano.database import QueryError, SqlTable, query, show
from rolltree.task.nano.sql import Sql
from rolltree.task.protocol import Item

PETS = SqlTable("pet", ("name", "age"), (("ki", 5), ("mo", 3), ("lu", 9)))
ITEM = Item("s", "pet(name,age) who age>4?\n", "select name from pet where age>4",
            meta={"table": "pet", "columns": ("name", "age"), "rows": PETS.rows,
                  "hidden": (("ra", 4), ("ti", 8), ("zu", 4))})  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "insert into pet values ('x',1)",
        "delete from pet",
        "drop table pet",
        "create table t(a)",
        "pragma database_list",
        "attach 'x.db' as x",
        "vacuum into 'x.db'",
        "select load_extension('x')",
        "select readfile('/etc/passwd')",
        "select random()",
        "select date('now')",
        "select zeroblob(1000000000)",
        "select 1; select 2",
        "select name from sqlite_master",
        "select * from pragma_table_info('pet')",
        "select * from json_each('[1,2]')",
        "select edit('x')",
        "select name from pet where name like '%k%k%k%'",
        "savepoint s",
        "begin",
        "analyze",
        "create temp table t(a)",
        f"select {'x' * 5000} from pet",
        f"select {','.join(['age'] * 40)} from pet",
        f"select {'not ' * 200} 1",
        "select 1 union " * 20 + "select 1",
        "select '\0'",
        "select '\ud800'",
        "with recursive n(x) as (select 1 union all select x+1 from n) select count(*) from n",
        "",
    ],
)
def test_everything_but_bounded_deterministic_reading_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text:
        with pytest.raises(QueryError):
            query([PETS], text)
    else:
        assert query([PETS], text) == ()
    assert not list(tmp_path.iterdir())


def test_work_and_rows_are_limited():
    cross = "select count(*) from " + ",".join(f"pet p{k}" for k in range(20))
    with pytest.raises(QueryError, match="too much work"):
        query([PETS], cross)
    with pytest.raises(QueryError, match="too many rows"):
        query([PETS], "select 1 from pet a,pet b,pet c")


def test_a_result_is_bounded_however_wide_it_is():
    """Rows, columns and values have limits of their own, so no query fills the memory."""
    word = "'" + "x" * 80 + "'"
    wide = f"with w(a) as (select {'||'.join([word] * 40)}) select {','.join(['a'] * 32)} from w,pet,pet b"
    rows = query([PETS], wide)
    assert (len(rows), len(rows[0]), len(str(rows[0][0]))) == (9, 32, 3200)
    with pytest.raises(QueryError, match="too big"):
        query([PETS], f"with w(a) as (select {'||'.join([word] * 40)}) select a||a||a||a from w")


def test_what_questions_need_is_still_allowed():
    for text, rows in (
        ("select count(*) from pet p where exists (select 1 from pet q where q.age>p.age)", ((2,),)),
        ("with w(n,a) as (select name,age from pet) select n from w where a>(select avg(a) from w)", (("lu",),)),
        ("select x.name from pet x join pet y on x.age<y.age group by x.name order by 1", (("ki",), ("mo",))),
        ("select name, count(*) over () from pet where age in (3,5) order by 1", (("ki", 2), ("mo", 2))),
    ):
        assert query([PETS], text) == rows


def test_rows_are_shown_on_one_line_and_cut():
    assert show(query([PETS], "select * from pet where age>4"), 40) == "ki 5,lu 9"
    assert show(query([PETS], "select avg(age), max(name) from pet"), 40) == "5.66667 mo"
    assert show(query([PETS], "select name from pet where age>99"), 40) == "none"
    assert show((("a" * 50,),), 10) == "aaaaaaaa.."


def submit(text):
    async def run():
        task = Sql()
        state, _ = task.start(ITEM)
        first = await task.step(ITEM, state, text)
        last = await task.step(ITEM, first.state, "ok\n")
        return first, last, await task.verify(ITEM, last.state, text + first.text + "ok\n")

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "score", "why"),
    [
        ("select name from pet where age>4\n", 1, ""),
        ("SELECT pet.name FROM pet WHERE NOT age<=4;\n", 1, ""),
        ("select name from pet where age>=4\n", 0, "the rows differ on the hidden rows"),
        ("select name from pet where age<4\n", 0, "the rows differ"),
        ("select nam from pet\n", 0, "the query fails: no such column: nam"),
    ],
)
def test_a_query_is_right_when_it_gives_the_reference_rows_on_both_databases(text, score, why):
    _, last, verdict = submit(text)
    assert last.done
    assert (verdict.score, verdict.why) == (score, why)


def test_errors_are_visible_to_the_policy_and_marked():
    first, _, _ = submit("select nam from pet\n")
    assert (first.text, first.failed) == ("err no such column:\n", True)


def test_nothing_submitted_is_no_answer():
    task = Sql()
    state, _ = task.start(ITEM)
    verdict = asyncio.run(task.verify(ITEM, state, "select 1\n"))
    assert (verdict.score, verdict.answer, verdict.why) == (0, None, "no query was submitted")


def test_order_counts_only_where_the_query_orders():
    assert submit("select name from pet where age>4 order by age desc\n")[2].score == 0
