from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "trl_tree.py"


def test_the_example_trains_with_a_tree_recipe_inside_trl(capsys):
    pytest.importorskip("trl", reason="TRL is not installed: pip install 'rolltree[trl]'")
    outcomes = runpy.run_path(str(EXAMPLE))["main"](2)
    assert len(outcomes) == 2
    assert all(0 <= outcome <= 1 for outcome in outcomes)
    assert "step  2" in capsys.readouterr().out
