"""The short form of the attacks on Ray clusters, each in a program of its own (make test-ray)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.test_attacks import ON_RAY

pytestmark = pytest.mark.ray
pytest.importorskip("ray")


@pytest.mark.parametrize("name", ON_RAY)
def test_short(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.attack", name, "--short", "--out", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    assert " 0 bad" in ran.stdout
