"""What is generated about a recipe lies with its paper, once, and elsewhere under its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rolltree.recipe.registry import recipes
from studies.lab import entry as entries
from studies.lab import places
from studies.lab.places import EVIDENCE, PAPERS, all_in_folders, in_folder


def test_an_entry_of_the_core_lies_in_evidence_and_one_of_a_paper_beside_it() -> None:
    assert entries.place("tis", EVIDENCE) == EVIDENCE / "tis.json"
    assert entries.place("delayed_trees", EVIDENCE) == EVIDENCE / "delayed_trees.json"
    for name, recipe in recipes().items():
        top, _, folder = recipe.__module__.partition(".")
        if top == PAPERS.name:
            own = "evidence.json" if folder == name else f"evidence-{name}.json"
            assert entries.place(name, EVIDENCE) == PAPERS / folder / own


def test_a_folder_of_ones_own_has_every_entry_under_its_name(tmp_path: Path) -> None:
    stored = entries.load_entries(EVIDENCE)[0]
    for name in ("tis", *(n for n, r in recipes().items() if r.__module__.startswith(PAPERS.name))):
        assert entries.save_entry(replace(stored, name=name), tmp_path) == tmp_path / f"{name}.json"


def test_no_entry_lies_in_two_places_and_all_are_read() -> None:
    core, papers = {path.stem for path in EVIDENCE.glob("*.json")}, all_in_folders("evidence.json")
    assert not core & papers.keys()
    assert {e.name for e in entries.load_entries(EVIDENCE)} == core | papers.keys()
    for name, path in papers.items():
        assert in_folder(name, "evidence.json") == path, f"{path} is of no recipe of its folder"


def test_two_recipes_of_a_folder_have_a_file_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PAPERS", tmp_path)
    (tmp_path / "one").mkdir()
    for file in ("evidence.json", "evidence-other.json"):
        (tmp_path / "one" / file).write_text(json.dumps({}))
    assert all_in_folders("evidence.json") == {
        "one": tmp_path / "one" / "evidence.json", "other": tmp_path / "one" / "evidence-other.json",
    }  # fmt: skip
