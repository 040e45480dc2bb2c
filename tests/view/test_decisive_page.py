"""The page of decisive tokens in a real browser, and the command on the same run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.tree import Forest, Tree
from rolltree.tree.store.parquet import save
from tests.view.conftest import Viewer, Window
from tests.view.forests import MARKUP, ids, tokenizer


def decided(folder: Path) -> Path:
    """A run in which the token after the prompt decides; what the other branches say is markup."""
    tree = Tree("t0", ids("ask " + MARKUP), item=MARKUP)
    for i in range(12):
        good = i % 2
        text = ("g" if good else "b") + MARKUP + "xyzuvw"[i // 2]
        tree.extend(0, ids(text), status="done", finish="eos", scores={"reward": float(good)})
    save(Forest([tree]), folder / "forests" / "step=1")
    (folder / "config.json").write_text('{"parts": {"name": "own"}}')
    tokenizer(folder / "checkpoints" / "step-000001")
    return folder


def test_decisive_tokens_of_a_real_run_lead_to_their_nodes(window: Window, real_run: Path, capsys):
    assert main(["decisive", str(real_run), "--json", "--step", "2", "--top", "40"]) == 0
    said = json.loads(capsys.readouterr().out)
    page = window.open("/run?run=treepo")
    page.click("a.decisive-link")
    page.wait_for_selector("h1:has-text('Decisive tokens of treepo, step 2')")
    page.wait_for_selector(".says:has-text('forks')")
    assert page.locator(".decision").count() == len(said["ranked"])
    for at, fork in enumerate(said["ranked"]):
        shown = page.locator(".decision").nth(at)
        head = shown.locator("h2").inner_text()
        assert f"took {100 * fork['before']:.0f} % to {100 * fork['branches'][0]['after']:.0f} %" in head
        assert shown.locator("tbody tr").count() == len(fork["branches"])
    if said["ranked"]:
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector(f".run.chosen[data-node='{said['ranked'][0]['branches'][0]['node']}']")


def test_what_a_model_wrote_stays_text(started, browser, tmp_path: Path):
    viewer: Viewer = started(decided(tmp_path / "decided"))
    page = browser.new_page()
    page.goto(viewer.address + "/decisive?run=decided")
    page.wait_for_selector(".decision")
    assert page.locator("h2").first.inner_text() in ("“g” took 50 % to 100 %", "“b” took 50 % to 0 %")
    assert "<script>" in page.locator(".decision tbody").inner_text()
    assert page.evaluate("window.planted") is None
    page.close()


def test_the_command_prints_the_ranking_at_80_columns(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["decisive", str(decided(tmp_path / "decided"))]) == 0
    said = capsys.readouterr().out
    assert "took 50 % to " in said
    assert "chance alone" in said
    assert main(["decisive", str(tmp_path / "decided"), "--tree", "nothing"]) == 2
    assert main(["decisive", str(tmp_path / "decided"), "--prior", "-1"]) == 2


def test_a_folder_of_several_runs_asks_for_one(tmp_path: Path, capsys):
    decided(tmp_path / "runs" / "one")
    decided(tmp_path / "runs" / "two")
    for verb in (["decisive"], ["modes"], ["credit", "grpo", "sibling"]):
        assert main([*verb, str(tmp_path / "runs")]) == 2
        said = capsys.readouterr().err
        assert "holds 2 runs; name one of them" in said
        assert said.count("\n") == 1
