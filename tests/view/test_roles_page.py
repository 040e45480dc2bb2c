"""Roles in the viewer: a real search with judges and notes, its votes at the nodes, its side trees, its values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rolltree.analysis.source import open_source
from rolltree.cli import main
from rolltree.tree import Forest, Tree
from rolltree.tree.references import refer
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import load, save
from rolltree.view.outline import outline
from rolltree.view.roles import asked_about, in_sight, role_trees, summary
from rolltree.view.state import state_of
from tests.view.conftest import PATIENCE, Viewer, Window


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roles") / "tmas"
    asked = ["--task", "countdown", "--items", "1", "--attempts", "3", "--turns", "2", "--ballots", "2"]
    assert main(["solve", "tmas", *asked, "--out", str(folder)]) == 0
    return folder


@pytest.mark.papers("tmas")
def test_every_side_tree_is_found_with_what_it_is_about(search: Path) -> None:
    archive = open_forest(search / "forests" / "step=1")
    trees = {tree.id: tree for tree in load(search / "forests" / "step=1")}
    sides = role_trees(archive)
    assert {t.id for t in sides} == {id for id, tree in trees.items() if "role" in tree.notes}
    (main_tree,) = set(trees) - {t.id for t in sides}
    assert len(asked_about(sides, main_tree)) == len(sides)
    judged = [node for node in trees[main_tree].leaves() if asked_about(sides, main_tree, node.id)]
    assert judged, "judges spoke about its rollouts"
    assert summary(sides).startswith("experience")
    assert {"value", "reward", "author"} <= set(outline(archive, main_tree).colourings)
    assert state_of(open_source(search)) == "done"
    (search / "report.json").rename(search / "aside.json")
    assert state_of(open_source(search)) == "crashed"
    (search / "aside.json").rename(search / "report.json")


def test_notes_of_other_programs_are_no_roles(tmp_path: Path) -> None:
    tree, odd = Tree("t", [1]), Tree("t/x", [1])
    first, second = tree.extend(0, [2], status="done"), tree.extend(0, [3], status="done")
    refer(second, [first])
    odd.notes |= {"role": "judge", "about": ["no place", 7, "t/1", "t/one"]}
    other = Tree("o", [1])
    other.notes["role"] = 3
    save(Forest([tree, odd, other]), tmp_path / "f")
    (side,) = role_trees(open_forest(tmp_path / "f"))
    assert side.about == (("t", 1),)
    assert in_sight(dict(load(tmp_path / "f")["t"][second.id].notes)) == [first.id]
    assert in_sight({"references": 3}) == in_sight({}) == []


@pytest.mark.papers("tmas")
def test_from_a_rollout_to_its_judge_and_back(started: Callable[..., Viewer], browser: Any, search: Path) -> None:
    viewer = started(search)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE)
    window = Window(page, viewer.address)
    page.on("pageerror", lambda error: window.errors.append(str(error)))
    archive = open_forest(search / "forests" / "step=1")
    sides = role_trees(archive)
    side = next(t for t in sides if t.role == "judge")
    tree, node = side.about[0]
    window.open(f"/tree?run=tmas&step=1&tree={tree}&node={node}&colour=value")
    page.wait_for_selector(".roles-said li")
    assert "judge" in page.locator(".roles-asked").inner_text()
    assert "value (what a search" in page.inner_text("body")
    page.click(".roles-said a >> nth=0")
    page.wait_for_selector(".role-of")
    assert f"node {node} of {tree}" in page.locator(".role-of").inner_text()
    page.click(f".role-of a:text-is('node {node} of {tree}')")
    page.wait_for_selector(".roles-said li")
    assert window.errors == []
    page.close()
