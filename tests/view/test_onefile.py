"""A tree as one file: whole without the network, and what was written in it stays text."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolltree.analysis.source import open_sources
from rolltree.cli import main
from rolltree.errors import RolltreeError
from rolltree.view import onefile
from tests.view.forests import MARKUP, a_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return a_run(tmp_path / "hostile", hostile=True)


def test_the_file_opens_in_a_browser_and_asks_for_nothing(run: Path, tmp_path: Path, browser):
    out = tmp_path / "out" / "tree.html"
    assert main(["view", str(run), "--html", str(out), "--step", "2", "--tree", "t1"]) == 0
    page = browser.new_page()
    asked, wrong = [], []
    page.on("request", lambda r: asked.append(r.url))
    page.on("console", lambda m: wrong.append(m.text))
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.goto(out.as_uri())
    page.wait_for_selector(".run.chosen[data-node='3']")
    assert page.title() == "t1 of hostile"
    assert page.locator(".rect").count() == 7
    assert page.locator(".run[data-node='2']").inner_text().count(MARKUP) == 2
    page.hover(".run[data-node='1'] .token >> nth=0")
    assert "90.5 %" in page.locator(".tip .tops").inner_text()
    page.focus(".rect.chosen")
    for key, node in (("ArrowUp", 2), ("ArrowUp", 1), ("Home", 0), ("ArrowDown", 1), ("ArrowDown", 2)):
        page.keyboard.press(key)
        page.wait_for_selector(f".run.chosen[data-node='{node}']")
        assert page.evaluate("document.activeElement.dataset.node") == str(node)
    assert "was forked into 3" in page.locator(".events").inner_text()
    page.click(".colour-advantage")
    page.wait_for_selector(".colour-advantage.on")
    page.click(".rect[data-node='4']")
    page.wait_for_selector(".run.chosen[data-node='4']")
    assert "advantage" in page.locator(".legend").inner_text()
    assert page.evaluate("window.planted") is None
    assert page.locator("script").count() == 2
    page.evaluate("fetch('http://127.0.0.1:9/').catch(() => (window.refused = true))")
    page.wait_for_function("window.refused")
    assert all(url.startswith("file:") for url in asked)
    assert [w for w in wrong if "Content Security Policy" not in w] == []
    page.close()


def test_without_names_it_is_the_newest_step_and_the_tree_whose_rollouts_differ(run: Path):
    (source,) = open_sources([run])
    assert onefile.chosen_tree(source, None, "") == (2, "t0")
    assert onefile.chosen_tree(source, 1, "t2") == (1, "t2")


def test_nothing_that_could_end_the_data_stands_in_it(run: Path):
    (source,) = open_sources([run])
    page = onefile.page_of(source, 2, "t0")
    data = page.partition('id="tree">')[2].partition("</script>")[0]
    assert not {"<", ">", "&"} & set(data)
    assert page.count("<script") == 2
    assert "http" not in page.replace("http-equiv", "").replace(data, "")


def test_what_is_too_big_or_there_already_is_refused_in_a_sentence(run: Path, tmp_path: Path, monkeypatch, capsys):
    out = tmp_path / "tree.html"
    out.write_text("mine")
    assert main(["view", str(run), "--html", str(out)]) == 2
    assert out.read_text() == "mine"
    assert main(["view", str(run), "--html", str(out), "--overwrite"]) == 0
    assert main(["view", str(run), "--html", str(out), "--tui"]) == 2
    assert main(["view", str(run), "--step", "2"]) == 2
    assert main(["view", str(run), str(run), "--html", str(tmp_path / "new.html")]) == 2
    assert capsys.readouterr().err.count("rolltree: ") == 4
    monkeypatch.setattr(onefile, "MOST", 10)
    (source,) = open_sources([run])
    with pytest.raises(RolltreeError, match="one file holds 10"):
        onefile.page_of(source, 2, "t0")
    monkeypatch.undo()
    monkeypatch.setattr(onefile, "MOST_NODES", 6)
    with pytest.raises(RolltreeError, match="7 nodes and one file holds 6"):
        onefile.page_of(source, 2, "t0")
