"""A paper is one folder: nothing outside imports it, and with the folder gone everything else is as it was.

The dynamic part is minutes long for each folder and belongs to the night. `make delete-papers` runs it, and
PAPERS="a b" chooses folders.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rolltree.recipe.registry import recipes

ROOT = Path(__file__).resolve().parents[1]
PAPERS = sorted(path.parent.name for path in ROOT.glob("rolltree_papers/[!_]*/__init__.py"))
CHOSEN = os.environ.get("PAPERS", "").split() or PAPERS
COPIED = ("rolltree", "rolltree_papers", "studies", "tests", "docs", "evidence", "benchmarks", "examples")
NAMES = ("tests/test_papers.py", "tests/test_deleted.py", "tests/lab/test_places.py", "tests/lab/test_recipe_pages.py")
"""Tests over all recipes and all pages."""


def imported(path: Path) -> set[str]:
    """The papers that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "rolltree_papers":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            found |= {str(node.args[0].value)} if called in ("import_module", "__import__") else set()
    return {name.split(".")[1] for name in found if name.startswith("rolltree_papers.")} | (found & {*PAPERS})


def test_no_file_imports_a_paper_of_another_folder() -> None:
    files = [path for folder in COPIED for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 500
    for path in files:
        parts = path.relative_to(ROOT).parts
        own = {parts[1]} if parts[0] == "rolltree_papers" else set()
        if parts[0] != "rolltree_papers" or parts[1] != "_template":
            assert imported(path) & {*PAPERS} <= own, f"{'/'.join(parts)} imports a paper; ask for its recipe by name"


def test_an_import_inside_of_a_function_is_seen(tmp_path: Path) -> None:
    """The check above is worth what it sees."""
    for text in (
        "def f():\n    from rolltree_papers.dars.study import dars",
        "import rolltree_papers.dars",
        "from rolltree_papers import dars",
        "import importlib\nimportlib.import_module('rolltree_papers.dars.study')",
    ):
        (tmp_path / "one.py").write_text(text)
        assert imported(tmp_path / "one.py") == {"dars"}, text


def test_no_recipe_of_the_core_has_a_baseline_in_a_paper() -> None:
    core = {name: recipe for name, recipe in recipes().items() if not recipe.__module__.startswith("rolltree_papers.")}
    assert len(core) > 20
    for name, recipe in core.items():
        for other in (recipe.card.baseline, recipe.card.evidence.baseline if recipe.card.evidence else ""):
            assert other in core or other not in recipes(), f"{name} is held against {other} of a paper"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout to delete from: the tracked folders, without caches."""
    made = tmp_path_factory.mktemp("checkout")
    for folder in COPIED:
        shutil.copytree(ROOT / folder, made / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "conftest.py", "mkdocs.yml", "README.md", "CONTRIBUTING.md", "Makefile"):
        shutil.copy(ROOT / file, made / file)
    return made


@pytest.fixture(scope="module")
def whole(copy: Path) -> set[str]:
    """What cannot be collected with every paper there, because a library is not installed."""
    return uncollected(copy)


@pytest.mark.slow
@pytest.mark.parametrize("paper", CHOSEN)
def test_everything_works_without_the_folder(copy: Path, whole: set[str], paper: str, tmp_path: Path) -> None:
    folder, away = copy / "rolltree_papers" / paper, tmp_path / paper
    written = {path: path.read_text() for path in (copy / "docs").rglob("*.md")}
    shutil.move(folder, away)
    try:
        gone = [name for name, recipe in recipes().items() if recipe.__module__ == f"rolltree_papers.{paper}"]
        assert gone
        listed = ran(copy, "-m", "rolltree", "recipes").split()
        assert not {*gone} & {*listed}
        assert "grpo" in listed
        ran(copy, "-c", IMPORTS)
        ran(copy, "-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])")
        ran(copy, "-m", "studies.lab.recipe_pages")
        assert uncollected(copy) <= whole
        ran(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *NAMES)
        assert not [name for name in gone if f"[{name}](" in (copy / "docs" / "recipes" / "index.md").read_text()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(away, folder)
        for path, text in written.items():
            path.write_text(text)


IMPORTS = """
import importlib, pkgutil
for top in ("rolltree", "rolltree_papers", "studies"):
    for found in pkgutil.walk_packages(importlib.import_module(top).__path__, top + "."):
        if "__main__" in found.name or "test_" in found.name or "_template" in found.name:
            continue
        try:
            importlib.import_module(found.name)
        except Exception as error:
            cause = error if isinstance(error, ImportError) else error.__context__
            ours = ("rolltree", "rolltree_papers", "studies")
            if not isinstance(cause, ImportError) or str(cause.name).partition(".")[0] in ours:
                raise
"""
"""Every module; one that asks for a library that is not installed is left out."""


def uncollected(checkout: Path) -> set[str]:
    """The files of tests that cannot be collected."""
    told = ran(checkout, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", fails=True)
    assert "tests collected" in told or "error" in told, told[-2000:]
    return {line.split()[1] for line in told.splitlines() if line.startswith("ERROR ")}


def ran(checkout: Path, *words: str, fails: bool = False) -> str:
    env = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    env.pop("PAPERS", None)
    done = subprocess.run([sys.executable, *words], cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert fails or done.returncode == 0, f"{' '.join(words[:4])}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout
