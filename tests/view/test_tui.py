"""Trees in the terminal, by keys alone, on a captured screen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.view.forests import MARKUP, a_run

pytest.importorskip("textual", reason="trees in the terminal are not installed: pip install 'rolltree[tui]'")


def screen(app: Any) -> str:
    """What stands on the screen, line by line."""
    return "\n".join("".join(part.text for part in line) for line in app.screen._compositor.render_strips())


async def walk(app: Any, keys: str, size: tuple[int, int]) -> str:
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys.split():
            await pilot.press(key)
            await pilot.pause()
        return screen(app)


def app_on(folder: Path) -> Any:
    from rolltree.analysis.source import open_sources
    from rolltree.view.tui import TreeApp

    return TreeApp(open_sources([folder]))


@pytest.mark.parametrize("width", [80, 120])
def test_keys_lead_from_a_step_to_a_leaf_and_its_tokens(tmp_path: Path, width: int):
    app = app_on(a_run(tmp_path / "tiny"))
    said = asyncio.run(walk(app, "down enter down enter down enter down", (width, 40)))
    assert "step 2" in said
    assert app.at is not None
    assert app.at.tree.ids[app.at.row] == 2
    assert "tool some words" in said
    assert "written by: env: calculator" in said
    assert max(map(len, said.splitlines())) <= width


def test_colours_change_and_what_was_written_stays_text(tmp_path: Path):
    app = app_on(a_run(tmp_path / "hostile", hostile=True))
    said = asyncio.run(walk(app, "down enter down enter down c", (160, 50)))
    assert app.colour == "entropy"
    assert MARKUP[:20] in said
    assert "entropy (nats" in said


def test_a_damaged_or_empty_source_is_a_sentence(tmp_path: Path):
    broken = a_run(tmp_path / "broken", steps=1) / "forests" / "step=1" / "nodes.parquet"
    broken.write_bytes(broken.read_bytes()[:100])
    said = asyncio.run(walk(app_on(tmp_path / "broken"), "down enter", (200, 20)))
    assert "cannot be read" in said
    assert "damaged" in said
    (tmp_path / "empty").mkdir()
    assert "holds no rollouts yet" in asyncio.run(walk(app_on(tmp_path / "empty"), "down", (160, 20)))
