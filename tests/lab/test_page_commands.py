"""Every command that a recipe's page prints runs as printed, in small."""

import re
import shlex
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.lab.recipe_pages import DOCS
from rolltree.recipe.registry import list_recipes
from rolltree.train import run

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "--steps": 1, "--prompts": 2, "--max-tokens": 16, "--eval-items": 1, "--eval-samples": 1, "--doctor": 0,
    "--forests-every": 0,
}  # fmt: skip
"""What makes any run small, whatever its recipe."""


def commands(name: str) -> list[list[str]]:
    """What stands behind `rolltree` in the commands of a recipe's page."""
    page = (ROOT / DOCS / f"{name}.md").read_text(encoding="utf-8")
    return [shlex.split(line) for line in re.findall(r"^rolltree (.+)$", page, re.MULTILINE)]


@pytest.mark.parametrize("name", [card.name for card in list_recipes()])
def test_the_command_of_every_page_runs(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "studies").symlink_to(ROOT / "studies")  # some recipes' tasks stand there
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "surroundings", dict)  # reading all sources again takes longer than a step
    printed = commands(name)
    assert printed
    for command in printed:
        code = main([*command, "--json", *(str(word) for option in SMALL.items() for word in option)])
        assert code == 0, capsys.readouterr().err
        assert (tmp_path / command[command.index("--out") + 1] / "metrics.jsonl").is_file()
