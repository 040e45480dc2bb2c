"""Runs kept in the repository: a table made from them alone is the table that the runs themselves give."""

import json
from dataclasses import replace

import pytest

from rolltree.compare.curves import endpoint
from rolltree.compare.names import COSTS
from rolltree.compare.stats.paired import t_quantile
from rolltree.compare.trace import TraceTally
from studies.again import differing
from studies.board import main, priced
from studies.lab.kept import KEPT
from studies.shelf_runs import bill
from studies.study_shelf import StudyShelf
from studies.table_runs import SIMULATED
from studies.tables import TABLES
from tests.studies.test_board import GAINS, Counting, small


class Itemised(Counting):
    """Runs that also tell what each held-out item got, and every cost."""

    def run(self, spec, folder, tick):
        made = super().run(spec, folder, tick)
        rows = tuple({**row, **dict.fromkeys(COSTS, 3.0), **({"eval/length": 7.0} if "eval/pass@1" in row else {})}
                     for row in made.rows)  # fmt: skip
        items = {f"i{k}": TraceTally(4, (k + spec.seed) % 5) for k in range(6)}
        return replace(made, rows=rows, items=items, first=items)


def test_a_table_of_kept_runs_is_the_same_and_nothing_is_run(tmp_path, capsys):
    main(small(tmp_path), Itemised(GAINS))
    first = {p.name: p.read_text() for p in (tmp_path / "out").iterdir() if p.is_file()}
    elsewhere = small(tmp_path, cache=tmp_path / "another machine", out=tmp_path / "out2")
    runner = Itemised(GAINS)
    main(elsewhere, runner)
    assert runner.made == []
    assert {p.name: p.read_text() for p in (tmp_path / "out2").iterdir() if p.is_file()} == first
    assert "28 finished" in capsys.readouterr().out
    (path,) = (tmp_path / "kept").iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines].count("run") == 28
    rows = [row for line in lines if line["kind"] == "run" for row in line["rows"] if "eval/pass@1" in row]
    assert rows
    assert all(row["eval/length"] == 7.0 for row in rows)
    assert [line["kind"] for line in lines].count("items") == 1, "names of items are written once"


def test_a_kept_run_of_other_code_is_counted_and_not_used(tmp_path, capsys):
    main(small(tmp_path), Counting(GAINS))

    class Changed(Counting):
        def made_of(self, spec):
            return t_quantile, endpoint

    runner = Changed(GAINS)
    shelf = StudyShelf(tmp_path / "other", runner, kept=tmp_path / "kept")
    whole = [p for _, p in priced(small(tmp_path), TABLES["trees-fresh"])]
    assert bill(whole, shelf).elsewhere == 28
    main(small(tmp_path, plan=True, cache=tmp_path / "other"), runner)
    assert "0 finished (28 are kept from other code or libraries)" in capsys.readouterr().out


def test_a_run_that_two_studies_made_at_once_is_kept_once(tmp_path):
    runner = Counting(GAINS)
    spec = priced(small(tmp_path), TABLES["trees-fresh"])[0][1].spec
    one, other = (StudyShelf(tmp_path / name, runner, kept=tmp_path / "kept") for name in ("one", "other"))
    assert one.get(spec) is other.get(spec) is None  # both have read what is kept
    for shelf in (one, other):
        shelf.keep(spec, shelf.make(spec, lambda cost, doing: None))
    lines = [json.loads(line) for line in next((tmp_path / "kept").iterdir()).read_text().splitlines()]
    assert [line["kind"] for line in lines].count("run") == 1


def test_simulated_seconds_are_kept_with_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("studies.study_shelf.simulated", lambda trace, spec, runner: 12.5)
    runner = Counting(GAINS)
    shelf = StudyShelf(tmp_path / "cache", runner, kept=tmp_path / "kept")
    spec = priced(small(tmp_path), TABLES["trees-fresh"])[0][1].spec
    shelf.keep(spec, shelf.make(spec, lambda cost, doing: None))
    again = StudyShelf(tmp_path / "none", runner, kept=tmp_path / "kept").get(spec)
    assert again is not None
    assert again.total(SIMULATED) == 12.5


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.jsonl")), ids=lambda p: p.name)
def test_what_the_repository_keeps_can_be_read(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    known = {line["digest"] for line in lines if line["kind"] == "items"}
    runs = [line for line in lines if line["kind"] == "run"]
    assert len({run["name"] for run in runs}) == len(runs)
    assert all(run[k]["ids"] in known for run in runs for k in ("items", "first"))
    assert path.stat().st_size < 10_000_000


def test_rounding_is_no_difference_between_a_kept_run_and_its_repetition():
    line = {"items": {}, "first": {}, "rows": [{"eval/pass@1": 0.5, "optim/step_factor": 0.9216899869677931}]}
    near = {**line, "rows": [{"eval/pass@1": 0.5, "optim/step_factor": 0.9216899639998486}]}
    apart = {**line, "rows": [{"eval/pass@1": 0.5, "optim/step_factor": 0.9217}]}
    gone = {**line, "rows": [{"eval/pass@1": 0.5}]}
    assert differing(line, near) == ""
    assert "optim/step_factor of row 0" in differing(line, apart)
    assert "optim/step_factor of row 0" in differing(line, gone)


class Moved(Counting):
    """The same runs, made by other code."""

    def made_of(self, spec):
        return t_quantile, endpoint


def test_runs_of_other_code_stand_where_one_of_their_kind_comes_out_the_same(tmp_path, capsys):
    main(small(tmp_path), Itemised(GAINS))
    table = {p.name: p.read_text() for p in (tmp_path / "out").iterdir() if p.is_file()}

    class Same(Moved, Itemised): ...

    runner = Same(GAINS)
    main(small(tmp_path, again=True, cache=tmp_path / "new", out=tmp_path / "out2"), runner)
    assert len(runner.made) == 7, "one of each row"
    assert {p.name: p.read_text() for p in (tmp_path / "out2").iterdir() if p.is_file()} == table
    assert "3 more runs of its kind are taken over" in capsys.readouterr().out
    lines = [json.loads(line) for line in next((tmp_path / "kept").iterdir()).read_text().splitlines()]
    assert sum("taken_over" in line for line in lines) == 21
    again = Same(GAINS)
    main(small(tmp_path, cache=tmp_path / "newer", out=tmp_path / "out3"), again)
    assert again.made == []


@pytest.mark.papers("latr", "rose")
def test_runs_of_a_kind_that_comes_out_otherwise_are_made_anew(tmp_path, capsys):
    main(small(tmp_path), Itemised(GAINS))

    class Better(Moved, Itemised): ...

    runner = Better({**GAINS, "rose": 0.4})
    main(small(tmp_path, again=True, cache=tmp_path / "new", out=tmp_path / "out2"), runner)
    told = capsys.readouterr().out
    assert "rose on arithmetic, seed 0: not the same again (eval/pass@1 of row 1 was" in told
    assert sorted(label for label, _ in runner.made) == sorted(
        ["grpo", "treepo", "treepo flat", "latr", "latr flat", *4 * ["rose"], *4 * ["rose flat"]]
    )
