"""Standard channels that the caller has closed: what is said goes nowhere, and never into a file of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import sys
from rolltree.cli import main
code = main(sys.argv[1:])
with open("told", "w") as sink:
    sink.write(f"{code} {sink.fileno() > 2}")
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("recipes grpo", 0), ("recipes nosuch", 2)])
def test_a_closed_channel_changes_nothing(tmp_path: Path, closed: str, words: str, code: int) -> None:
    line = f'"$0" -c "$1" {words} {closed}'
    subprocess.run(["sh", "-c", line, sys.executable, WORK], cwd=tmp_path, check=True)
    assert (tmp_path / "told").read_text() == f"{code} True"


def test_a_reader_of_the_overview_may_leave() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "rolltree", "--help"], stdout=gone, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == ""
