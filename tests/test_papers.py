"""A paper is a folder: the core runs without any, and a copied folder is a recipe in every verb."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rolltree.recipe.registry import recipes
from rolltree.registry import papers

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = "import sys, rolltree.registry as r; r.paper_folders = lambda: []; from rolltree.cli import main; "
START = {"grpo", "dapo", "dr_grpo", "rloo", "gspo", "cispo", "ppo", "tis", "treepo", "gigpo", "mcts", "best_of_n"}


def python(*words: str, path: tuple[Path, ...] = (), cwd: Path) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join(map(str, (ROOT, *path, os.environ.get("PYTHONPATH", ""))))
    env = os.environ | {"PYTHONPATH": search, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_every_folder_of_a_paper_holds_a_recipe():
    homes = {recipe.__module__ for recipe in recipes().values()}
    assert set(papers()) <= homes


def test_without_papers_the_core_lists_its_own_and_says_where_the_others_are(tmp_path):
    told = python("-c", WITHOUT + "sys.exit(main(['recipes']))", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    words = told.stdout.split()
    assert set(words) >= START
    assert "arrol" not in words
    assert "pip install 'rolltree[papers]'" in told.stdout


def test_without_papers_the_recipe_of_one_is_refused_with_the_way_to_it(tmp_path):
    told = python("-c", WITHOUT + "sys.exit(main(['recipes', 'arrol']))", cwd=tmp_path)
    assert told.returncode == 2
    assert "unknown recipe 'arrol'" in told.stderr
    assert "pip install 'rolltree[papers]'" in told.stderr


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of papers of somebody else, with the template copied into it and renamed."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "rolltree_papers" / "_template", site / "lab_papers" / "heats")
    (site / "lab_papers" / "__init__.py").touch()
    for file in (site / "lab_papers" / "heats").glob("*.py"):
        text = file.read_text().replace("rolltree_papers._template", "lab_papers.heats")
        file.write_text(text.replace('"template"', '"heats"').replace("Template", "Heats"))
    info = site / "lab_papers-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-papers\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rolltree.papers]\nlab = lab_papers\n")
    return site


def test_a_copied_folder_is_described_trained_and_compared(own, tmp_path):
    described = python("-m", "rolltree", "recipes", "heats", path=(own,), cwd=tmp_path)
    assert described.returncode == 0, described.stderr
    assert "TwoHeats" in described.stdout
    small = ("--task", "arithmetic", "--out", "run", "--steps", "2", "--prompts", "2", "--eval-every", "0")
    trained = python("-m", "rolltree", "train", "heats", *small, path=(own,), cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    line = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    assert '"rollout/births/resample": 0' not in line
    page = python("-c", "from studies.lab.recipe_pages import page; print(page('heats'))", path=(own,), cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert page.stdout.startswith("# heats")
    one = ("--task", "arithmetic", "--budget", "300", "--seeds", "1", "--out", "compared")
    compared = python("-m", "rolltree", "compare", "grpo", "heats", *one, path=(own,), cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr


def test_the_tests_of_a_copied_folder_run(own, tmp_path):
    ran = python("-m", "pytest", "-q", str(own / "lab_papers" / "heats"), path=(own,), cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout
