"""A run that is told to end ends: in a sentence, with the signal's exit code, nothing half-written, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from rolltree.cli import main

CASES = ("evaluating SIGINT", "evaluating SIGTERM", "saving SIGTERM", "saving SIGHUP")


def _as_in_a_terminal() -> None:
    """A shell's background ignores SIGINT, and `nohup` ignores SIGHUP; both are inherited."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.cli.signalled", str(tmp_path_factory.mktemp("signals"))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"},
        preexec_fn=_as_in_a_terminal,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_run_ends_in_a_sentence_and_goes_on(told: dict[str, Any], name: str) -> None:
    case, number = told[name], signal.Signals[name.split()[1]]
    said = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert case["code"] == 128 + number, case["said"]
    assert case["said"].splitlines()[-1] == f"rolltree: {said}; what was finished is kept"
    assert "Traceback" not in case["said"]
    assert case["log"].splitlines()[-1].endswith("stopped from outside; resume=True (--resume) goes on")
    assert case["left"] == [], "nothing half-written lies there"
    assert case["again"] == 0


def test_a_second_signal_ends_it_at_once_and_it_goes_on_all_the_same(told: dict[str, Any]) -> None:
    assert told["twice"]["code"] == -signal.SIGHUP
    assert told["twice"]["again"] == 0


def test_what_somebody_chose_before_stays(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert main(["--version"]) == 0
        assert main(["recipes", "nosuch"]) == 2
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


EARLY = """
import os, runpy, signal, sys
def heard(event, arguments):
    if event == "import" and arguments[0] == "rolltree.cli.signals":
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(heard)
sys.argv = ["rolltree", "recipes"]
runpy.run_module("rolltree", run_name="__main__")
"""
LATE = """
import atexit, os, runpy, signal, sys
import rolltree.cli.recipes as verb
def run(arguments):
    os.kill(os.getpid(), signal.SIGINT)
verb.run = run
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
sys.argv = ["rolltree", "recipes"]
runpy.run_module("rolltree", run_name="__main__")
"""


@pytest.mark.parametrize(("moment", "said"), [
    (EARLY, ""), (LATE, "rolltree: interrupted; what was finished is kept\n"),
])  # fmt: skip
def test_before_it_can_hear_and_after_its_last_words_it_ends_without_a_traceback(moment: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", moment], capture_output=True, text=True, check=False, preexec_fn=_as_in_a_terminal
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, said)
