"""A viewer that runs, and a real browser that looks at it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rolltree.tree import Forest
from rolltree.tree.store import jsonl
from rolltree.tree.store.parquet import save
from tests.view.forests import a_run, a_tree

PATIENCE = 300_000
"""Milliseconds a page may take before a test fails; generous, for machines with other work."""


@dataclass
class Viewer:
    """A running viewer."""

    address: str
    process: subprocess.Popen[str]
    folder: Path = Path()


@dataclass
class Window:
    """A tab that notes whatever goes wrong in it."""

    page: Any
    address: str
    errors: list[str] = field(default_factory=list)

    def open(self, place: str) -> Any:
        """Go to a place of the viewer and wait until it has drawn all it will draw."""
        self.page.goto(self.address + place)
        self.page.wait_for_selector(".page")
        self.page.wait_for_function("window.socket?.connected && !document.querySelector('.waiting')")
        return self.page


def rectangle(page: Any, key: str) -> tuple[float, float]:
    """Where the middle of a rectangle of the icicle is in the window: n3 is node 3."""
    page.locator(".icicle").scroll_into_view_if_needed()
    at = page.evaluate(
        """key => {
            const all = document.querySelector(".icicle"), box = all.boxOf(key), edge = all.getBoundingClientRect();
            return [edge.x + box.x + box.w / 2, edge.y + box.y + box.h / 2];
        }""",
        key,
    )
    return at[0], at[1]


def start(*arguments: str | Path) -> Viewer:
    """Start a viewer as its own process and wait until it listens."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "NICEGUI"))}
    command = [sys.executable, "-m", "rolltree", "view", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, env=outside, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    said = process.stdout.readline()
    assert " at http://" in said, said + process.stdout.read()
    address = said.rpartition(" at ")[2].strip()
    parts = urlsplit(address)
    deadline = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            socket.create_connection(("127.0.0.1", parts.port or 0), 5).close()
            return Viewer(address.rstrip("/"), process)
        except ConnectionRefusedError:
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline, "the viewer does not listen"


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[..., Viewer]]:
    """Start viewers that end with the session."""
    pytest.importorskip("nicegui", reason="the viewer is not installed: pip install 'rolltree[view]'")
    running: list[Viewer] = []

    def one(*arguments: str | Path) -> Viewer:
        running.append(start(*arguments))
        return running[-1]

    yield one
    for viewer in running:
        viewer.process.terminate()
        viewer.process.communicate(timeout=300)


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few steps of real training with trees."""
    folder = tmp_path_factory.mktemp("real") / "treepo"
    options = ["--task", "countdown", "--steps", "2", "--prompts", "2", "--forests-every", "1", "--eval-every", "0"]
    command = [sys.executable, "-m", "rolltree", "train", "treepo", *options, "--out", str(folder)]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="session")
def viewer(started: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory, real_run: Path) -> Viewer:
    """One viewer for most tests: real, hostile, growing, empty and damaged runs, and other programs' nodes."""
    folder = tmp_path_factory.mktemp("view")
    a_run(folder / "hostile", hostile=True)
    a_run(folder / "growing", steps=1)
    (folder / "empty").mkdir()
    broken = a_run(folder / "broken")
    whole = (broken / "forests" / "step=1" / "nodes.parquet").read_bytes()
    (broken / "forests" / "step=1" / "nodes.parquet").write_bytes(whole[: len(whole) // 2])
    (broken / "metrics.jsonl").write_text("{not json}\n")
    jsonl.write(Forest([a_tree("other")]), folder / "nodes.jsonl")
    (folder / "bad.jsonl").write_text('{"tree": "t", "id": 0}\n')
    save(Forest([a_tree("columns")]), folder / "forest")
    sources = [folder / n for n in ("hostile", "growing", "empty", "broken", "nodes.jsonl", "bad.jsonl", "forest")]
    made = started(real_run, *sources)
    made.folder = folder
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, for one module: while it is open, its event loop is in the way of `asyncio.run`."""
    api = pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright: pip install playwright")
    program = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if program is None:
        pytest.skip("browser tests need Chromium on the path: apt install chromium")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def window(browser: Any, viewer: Viewer) -> Iterator[Window]:
    """A fresh tab on the shared viewer; the test fails if its console showed an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    tab = Window(context.new_page(), viewer.address)
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on("console", lambda m: tab.errors.append(m.text) if m.type == "error" else None)
    yield tab
    context.close()
    assert tab.errors == []
