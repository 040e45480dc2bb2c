"""What is noted while a run goes on, and the time that is left."""

import io
import json

import pytest
from rich.console import Console

from rolltree.compare.progress import metered
from rolltree.compare.trace import TraceTally
from rolltree.compare.watch import RunWatch, noted, tallies
from rolltree.training.loop import RunEvent
from rolltree.tree import Tree


def tree(answers, item="i"):
    made = Tree("t", [1], item=item)
    stem = made.extend(0, [2, 3])
    for answer in answers:
        made.extend(
            stem, [4, 5], status="done", scores={"reward": float(answer == "7")}, notes={"answer": answer}
        )  # fmt: skip
    return made


def test_tallies_leave_out_what_could_not_be_judged():
    failed = Tree("f", [1], item="j")
    failed.extend(0, [2], status="failed")
    assert tallies([tree(["7", "3"]), failed]) == {"i": TraceTally(2, 1, 2)}


def test_the_last_line_of_a_step_counts_and_a_torn_line_does_not(tmp_path):
    watch = RunWatch(tmp_path / "deep" / "w.jsonl")
    watch(RunEvent("evaluated", 1, {}, (tree(["7"]),)))
    watch(RunEvent("evaluated", 1, {}, (tree(["3", "3"]),)))
    with watch.path.open("a") as sink:
        sink.write(json.dumps({"kind": "eval", "step": 2, "items": {}})[:9])
    assert noted(tmp_path / "nothing") == ({}, {})
    assert noted(watch.path) == ({"i": TraceTally(1, 1, 1)}, {"i": TraceTally(2, 0, 1)})


def test_time_left_is_judged_by_runs_really_made():
    out = io.StringIO()
    with metered(Console(file=out, width=100), 4) as meter:
        assert meter.left() is None
        meter.finish("a", reused=True)
        assert meter.left() is None
        meter.started -= 10
        meter.finish("b", reused=False, result="pass@1 3 %")
        assert meter.left() == pytest.approx(20, rel=0.05)
        meter.part(0.5, "c")
        assert meter.left() == pytest.approx(10, rel=0.05)
    assert "[1/4] a reused" in out.getvalue()
    assert "[2/4] b done  pass@1 3 %   20 s left" in out.getvalue()
