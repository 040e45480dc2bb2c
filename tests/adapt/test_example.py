from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("example", ["trl_tree.py", "trl_environment.py"])
def test_the_examples_train_with_a_tree_recipe_inside_trl(example, capsys):
    pytest.importorskip("trl", reason="TRL is not installed: pip install 'rolltree[trl]'")
    outcomes = runpy.run_path(str(EXAMPLES / example))["main"](2)
    assert len(outcomes) == 2
    assert all(0 <= outcome <= 1 for outcome in outcomes)
    assert "step  2" in capsys.readouterr().out
