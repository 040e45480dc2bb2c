"""Make the pictures of docs/howto/view.md and its neighbours: python docs/screenshots.py [FOLDER [NAME …]]

Without a folder of runs it trains two (grpo and treepo on countdown, five minutes); with names it makes these alone
(`calls` needs no runs).
Needs rolltree[view], Playwright and Chromium.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, ViewportSize, sync_playwright

IMAGES = Path(__file__).parent / "img"
SIZE: ViewportSize = {"width": 1180, "height": 860}
READY = "window.socket?.connected && !document.querySelector('.waiting')"


def trained(folder: Path) -> Path:
    """Runs worth a picture."""
    options = ["--task", "countdown", "--steps", "6", "--items", "8", "--prompts", "8", "--forests-every", "1"]
    for recipe in ("grpo", "treepo"):
        more = ["--segment", "8"] if recipe == "treepo" else []
        command = [sys.executable, "-m", "rolltree", "train", recipe, *options, "--eval-every", "2", *more]
        command += ["--out", str(folder / recipe)]
        subprocess.run(command, check=True)
    return folder


def listens(port: int, server: subprocess.Popen[str]) -> None:
    """Come back when the viewer takes connections."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            if server.poll() is not None:
                raise SystemExit("the viewer ended before it could be looked at") from None
        else:
            return


def played(folder: Path) -> Path:
    """Rollouts of an agent, forked at its calls."""
    agent = f"{Path(__file__).parents[1] / 'benchmarks' / 'black_box_agents.py'}:calculator"
    command = [sys.executable, "-m", "rolltree", "rollout", "treeps_rag", "--task", "calculator?fail_rate=0", "--agent", agent]
    subprocess.run([*command, "--items", "2", "--leaves", "6", "--policy", "nano", "--out", str(folder)], check=True)
    return folder


def calls(address: str, run: str, page: Page) -> None:
    """The page of an agent's calls."""
    shoot(page, f"{address}/calls?run={run}", "calls", "table[aria-label=calls] tbody tr")


def shoot(page: Page, address: str, name: str, *waits: str) -> None:
    """Open a page, wait until it is drawn, and keep what it looks like."""
    page.goto(address)
    page.wait_for_function(READY)
    for what in waits:
        page.wait_for_selector(what)
    page.screenshot(path=IMAGES / f"view-{name}.png")


def analyses(address: str, run: str, page: Page, only: Sequence[str]) -> None:
    """The pages of one question each: decisive tokens, one prompt over time, several credits, a what-if."""
    if not only or "decisive" in only:
        shoot(page, f"{address}/decisive?run={run}", "decisive", ".decision")
    if not only or "modes" in only:
        page.emulate_media(reduced_motion="reduce")
        page.goto(f"{address}/modes?run={run}")
        page.wait_for_function(READY)
        page.focus(".scrubber input")
        page.keyboard.press("ArrowLeft")
        page.hover(".mode:visible >> nth=1")
        page.screenshot(path=IMAGES / "view-modes.png")
    if not only or "lens" in only:
        lens(address, run, page)
    page.goto(f"{address}/run?run={run}")
    page.wait_for_function(READY)
    for level in ("tbody a.row-link", "tbody a.row-link"):
        page.click(f"{level} >> nth=0")
        page.wait_for_function(READY)
    page.wait_for_selector(".icicle[data-drawn]")
    if not only or "whatif" in only:
        page.click(".whatif-link")
        page.wait_for_selector(".begin")
        page.click(".run >> nth=-1 >> .token >> nth=4")
        page.wait_for_selector(".token.marked")
        page.click(".begin")
        page.wait_for_selector(".whatif-state.done")
        page.wait_for_selector("table.grid tbody tr >> nth=6")
        page.screenshot(path=IMAGES / "view-whatif.png")


def lens(address: str, run: str, page: Page) -> None:
    """The first tree of the newest step in which two credits disagree."""
    page.goto(f"{address}/run?run={run}")
    page.wait_for_function(READY)
    page.click("tbody a.row-link >> nth=0")
    page.wait_for_selector("th:has-text('forks')")
    for place in page.locator("tbody a.row-link").evaluate_all("all => all.map((a) => a.href)"):
        page.goto(place.replace("/tree?", "/lens?") + "&credits=grpo,fork_relative")
        page.wait_for_function(READY)
        if page.locator("a.row-link").count():
            page.goto(page.locator("a.row-link >> nth=0").evaluate("a => a.href"))
            page.wait_for_function(READY)
            page.hover(".token.marked >> nth=0")
            page.screenshot(path=IMAGES / "view-lens.png")
            return


def pictures(address: str, run: str, page: Page) -> None:
    """All of them."""
    IMAGES.mkdir(exist_ok=True)
    shoot(page, f"{address}/", "runs", ".curve .main-svg")
    page.goto(f"{address}/run?run={run}")
    page.wait_for_function(READY)
    page.click("tbody a.row-link >> nth=0")
    page.wait_for_selector("th:has-text('forks')")
    shoot(page, page.url, "step", "tbody a.row-link")
    page.click("tbody a.row-link >> nth=0")
    page.wait_for_selector(".icicle[data-drawn]")
    page.set_viewport_size({"width": 1180, "height": 1240})  # nothing scrolls when decisions are pointed at
    page.click(".colour-advantage")
    page.wait_for_selector(".colour-advantage.on")
    page.hover(".events li >> nth=0")
    page.hover(".run.chosen .token >> nth=2")
    page.screenshot(path=IMAGES / "view-tree.png")
    page.set_viewport_size(SIZE)
    page.click(".pair-link")
    page.wait_for_selector(".twin >> nth=1 >> .token >> nth=0")
    page.evaluate("rolltreeTheme()")
    page.screenshot(path=IMAGES / "view-pair.png")
    page.evaluate("rolltreeTheme()")


def main() -> None:
    """Serve a run, look at it, stop."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        only = sys.argv[2:]
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else trained(Path(scratch) / "runs")
        seen = [str(run)] if only != ["calls"] else []
        if not only or "calls" in only:
            seen.append(str(played(Path(scratch) / "agent")))
        command = [sys.executable, "-m", "rolltree", "view", *seen, "--model", "nano", "--port", "0"]
        server = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            assert server.stdout is not None
            address = server.stdout.readline().rpartition(" at ")[2].strip().rstrip("/")
            page = browser.new_page(viewport=SIZE)
            page.set_default_timeout(60_000)
            listens(urlsplit(address).port or 0, server)
            if not only:
                pictures(address, "treepo", page)
            if only != ["calls"]:
                analyses(address, "treepo", page, only)
            if not only or "calls" in only:
                calls(address, "agent", page)
        finally:
            browser.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
