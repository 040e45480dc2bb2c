"""The pytest plugin: one test per check on the part that was named, one sentence per fault, silence otherwise."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

PARTS = """
from rolltree.generate.independent import Independent

good = Independent(2)

class Silent:
    needs = frozenset()
    async def grow_tree(self, tree, hand):
        tree.extend(tree.root, [1], status="done", finish="eos")
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "rolltree.testing.plugin", *options]
    env = {"PYTHONPATH": f"{folder}:{REPOSITORY}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_checks_run_on_a_named_strategy(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    done = run(tmp_path, "--rolltree-strategy", "parts:good", "--rolltree-strategy", "parts:Silent", "-q")
    assert done.returncode == 1
    assert "broken contract: 0 tokens were paid and 3 sampled ones stand in the forest" in done.stdout
    assert "FAILED ::strategy parts:Silent events_explain_every_node" in done.stdout
    assert "FAILED ::strategy parts:good" not in done.stdout
    assert "Traceback" not in done.stdout


def test_a_wrong_name_is_one_sentence(tmp_path):
    done = run(tmp_path, "--rolltree-strategy", "parts:missing")
    assert done.returncode == 4
    assert "--rolltree-strategy 'parts:missing' cannot be imported" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_loading_the_plugin_costs_nothing():
    code = "import sys, rolltree.testing.plugin; print([m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
