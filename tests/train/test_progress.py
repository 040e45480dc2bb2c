"""What a run says reaches its log, whoever says it."""

from __future__ import annotations

import logging
import re
import threading
from io import StringIO
from pathlib import Path

import pytest
import torch

import rolltree
from rolltree.console import Terminal
from rolltree.training.config import TrainConfig
from rolltree.training.loop import RunEvent
from rolltree.training.progress import Reporter
from tests.train.toy import KNOBS, Early, tiny_policy


def test_what_an_engine_warns_of_stands_in_the_runs_log_while_the_run_lasts(
    tmp_path: Path, engine_log: logging.Logger
) -> None:
    with Reporter(tmp_path / "log.txt", TrainConfig(), quiet=True):
        engine_log.warning("The local engine ran out of memory with %d requests inside.", 7)
        engine_log.info("not this")
    engine_log.warning("after the run")
    text = (tmp_path / "log.txt").read_text()
    assert "ran out of memory with 7 requests inside." in text
    assert "not this" not in text
    assert "after the run" not in text
    assert not logging.getLogger("rolltree").handlers


STEP = {
    "reward/mean": 0.5,
    "rollout/length": 1024.0,
    "budget/decoded": 18000.0,
    "budget/trained": 1500.0,
    "time/grow": 2.0,
}
RATES = {"eval/pass@1": 0.357, "eval/pass@1_low": 0.25, "eval/pass@1_high": 0.48, "eval/items": 64.0}


@pytest.mark.parametrize("width", [80, 120])
def test_a_screen_says_what_a_run_does_and_never_more_than_fits(width: int, tmp_path: Path) -> None:
    screen = StringIO()
    console = Terminal(file=screen, force_terminal=True, width=width, height=30, color_system=None)
    shown: list[str] = []

    def look() -> None:
        reporter._bar.refresh()
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", screen.getvalue()).replace("\r", "\n").splitlines()
        assert max(map(len, lines)) <= width
        shown.append(next(line.rstrip() for line in reversed(lines) if line.strip()))

    with Reporter(tmp_path / "log.txt", TrainConfig(steps=1000), console=console) as reporter:
        look()
        for live in (
            RunEvent("evaluating", 0, {"done": 0, "items": 64}), RunEvent("evaluating", 0, {"done": 12, "items": 64}),
            RunEvent("evaluated", 0, RATES), RunEvent("growing", 1), RunEvent("grown", 1), RunEvent("trained", 1, STEP),
        ):  # fmt: skip
            reporter(live)
            look()
        reporter.warn("the engine ran out of memory")
        reporter(RunEvent("growing", 2))
        look()
        reporter(RunEvent("trained", 999, STEP))
        look()
    first, start, some, rate, growing, learning, step, warned, last = shown
    assert first.startswith("starting")
    assert start.startswith("evaluating 0/64")
    assert some.startswith("evaluating 12/64")
    assert rate.startswith("pass@1 35.7%")
    assert growing.startswith("rolling out · pass@1 35.7%")
    assert learning.startswith("learning · pass@1 35.7%")
    assert step.startswith("pass@1 35.7% · reward 0.500 len 1024 9,000 tok/s")
    assert "1 warning" in warned
    assert last.startswith("pass@1 35.7% · reward 0.500 len 1024 9,000 tok/s · 1 warning")
    assert "999/1000" in last


def test_where_there_is_no_screen_an_evaluation_says_that_it_has_begun(tmp_path: Path) -> None:
    paper = StringIO()
    with Reporter(tmp_path / "log.txt", TrainConfig(), console=Terminal(file=paper, width=80)) as reporter:
        reporter(RunEvent("evaluating", 0, {"done": 0, "items": 64}))
        reporter(RunEvent("evaluating", 0, {"done": 0, "items": 64}))
        reporter(RunEvent("evaluating", 0, {"done": 12, "items": 64}))
    assert paper.getvalue() == "step 0: evaluating 64 held-out items, 8 samples each\n"


def test_what_an_engine_warns_of_stands_in_the_log_and_in_the_numbers(
    tmp_path: Path, engine_log: logging.Logger
) -> None:
    torch.set_num_threads(1)

    def listen(live: RunEvent) -> None:
        if live.kind == "grown" and live.step == 1:
            thread = threading.Thread(target=engine_log.warning, args=("No progress for %d s: an engine.", 130))
            thread.start()
            thread.join()

    knobs = {**KNOBS, "steps": 2, "eval_every": 0, "checkpoint_every": 0, "forests_every": 0}
    done = rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "run", listen=listen, **knobs)
    said = "No progress for 130 s: an engine."
    assert said in (tmp_path / "run" / "log.txt").read_text()
    assert [line for line in done.metrics if line["kind"] == "warnings"] == [
        {"kind": "warnings", "step": 1, "said": said}
    ]
    engine_log.warning("after the run")
    assert "after the run" not in (tmp_path / "run" / "metrics.jsonl").read_text()
