"""Runs of very many steps: what is sent to a browser does not grow with them."""

from __future__ import annotations

import json
from pathlib import Path

from rolltree.analysis.source import open_source
from rolltree.metrics import log
from rolltree.view import runs
from rolltree.view.pages.parts import curve_figure
from rolltree.view.runs import POINTS, ROWS, Line, curve, lines_of, steps, thinned, window

STEPS = 20_000


def written(folder: Path) -> Path:
    """The metrics of a long run, with one spike."""
    lines = [{"kind": "train", "step": s, "reward/mean": s % 7 + 1000.0 * (s == 4321)} for s in range(1, STEPS + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_table_holds_a_window_and_every_step_stands_in_exactly_one(tmp_path: Path) -> None:
    found, before, seen = steps(open_source(written(tmp_path))), None, list[int | None]()
    while True:
        some, older = window(found, before)
        assert 0 < len(some) <= ROWS
        seen += [s.step for s in some]
        if older is None:
            break
        before = older
    assert seen == list(range(STEPS, 0, -1))
    assert window(found[:3]) == (found[:3], None)


def test_a_figure_holds_few_points_and_keeps_ends_spikes_and_intervals(tmp_path: Path) -> None:
    whole = curve("long", lines_of(open_source(written(tmp_path))), "reward/mean", "step")
    few = thinned(whole)
    assert len(whole.x) == STEPS
    assert len(few.x) <= POINTS
    assert (few.x[0], few.x[-1], max(few.y)) == (1, STEPS, max(whole.y))
    assert set(zip(few.x, few.y, strict=True)) <= set(zip(whole.x, whole.y, strict=True))
    assert list(few.x) == sorted(few.x)
    for smooth in (1, 9):
        figure = curve_figure("m", "step", [whole], {"long": "x"}, smooth)
        assert sum(len(part["x"]) for part in figure["data"]) <= 2 * POINTS
        assert all(len(part["x"]) == len(part["y"]) for part in figure["data"])
    band = Line("b", whole.x, whole.y, tuple(y - 1 for y in whole.y), tuple(y + 1 for y in whole.y))
    kept = thinned(band)
    assert [(y - 1, y + 1) for y in kept.y] == list(zip(kept.low, kept.high, strict=True))


def test_a_page_reads_a_file_once_while_it_does_not_change(tmp_path: Path, monkeypatch) -> None:
    source, read = open_source(written(tmp_path)), list[Path]()
    monkeypatch.setattr(runs, "read_metrics", lambda path: (read.append(path), log.read_metrics(path))[1])
    for _ in range(3):
        lines_of(source)
    assert len(read) == 1
    with (tmp_path / "metrics.jsonl").open("a") as sink:
        sink.write('{"kind": "train", "step": 20001}\n')
    assert lines_of(source)[-1]["step"] == STEPS + 1
    assert len(read) == 2
