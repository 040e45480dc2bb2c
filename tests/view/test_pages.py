"""Every page in a real browser."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.view.conftest import PATIENCE, Viewer, Window, rectangle
from tests.view.forests import MARKUP, a_line, add_step, huge


def query(page: Any) -> dict[str, str]:
    return {k: v[0] for k, v in parse_qs(urlsplit(page.url).query).items()}


def test_a_real_run_from_its_curves_down_to_a_token(window: Window):
    page = window.open("/")
    page.wait_for_selector(".curve .main-svg")
    assert page.locator("table.grid tbody tr").count() == 8
    page.click("text=treepo >> nth=0")
    page.wait_for_selector("a.row-link:has-text('step 2')")
    page.click("a.row-link:has-text('step 1')")
    page.wait_for_selector("th:has-text('reward_std')")
    page.click("th a:has-text('reward_std')")
    page.wait_for_selector("th[aria-sort=ascending]:has-text('reward_std')")
    spreads = [float(t) for t in page.locator("tbody td:nth-child(3)").all_inner_texts()]
    assert spreads == sorted(spreads)
    page.click("tbody a.row-link >> nth=0")
    page.wait_for_selector(".icicle[data-drawn]")
    page.wait_for_selector(".run.policy .token")
    page.hover(".run.policy .token >> nth=0")
    tip = page.locator(".tip").inner_text()
    assert "log p" in tip
    assert "version" in tip
    page.click(".pair-link")
    page.wait_for_selector(".twin .run.chosen .token >> nth=1")
    assert "share" in page.locator("h2 >> nth=0").inner_text()


def test_a_deep_link_shows_the_node_and_the_colouring_it_names(window: Window):
    page = window.open("/tree?run=hostile&step=2&tree=t1&node=2&colour=author")
    page.wait_for_selector(".run.chosen[data-node='2']")
    assert page.locator(".colour-author.on").count() == 1
    assert "step reward 0.5" in page.locator(".run.chosen .run-head").inner_text()
    assert "was forked into 3" in page.locator(".events.here").inner_text()
    page.click(".events.here button:has-text('node 4')")
    page.wait_for_selector(".run.chosen[data-node='4']")
    page.wait_for_function("location.search.includes('node=4')")


def test_rectangles_colours_and_keys_lead_through_a_tree(window: Window):
    page = window.open("/tree?run=growing&step=1&tree=t0&node=3")
    page.wait_for_selector(".icicle[data-drawn='7']")
    for key, node in (
        ("ArrowUp", 2),
        ("ArrowUp", 1),
        ("ArrowDown", 2),
        ("ArrowDown", 3),
        ("ArrowRight", 4),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(f".run.chosen[data-node='{node}']")
    page.keyboard.press("c")
    page.wait_for_selector(".colour-entropy.on")
    page.mouse.click(*rectangle(page, "n6"))
    page.wait_for_function("location.search.includes('node=6')")
    assert query(page)["colour"] == "entropy"
    page.click(".colour-advantage")
    page.wait_for_selector(".colour-advantage.on")
    page.wait_for_function("location.search.includes('colour=advantage')")
    page.keyboard.press("End")
    page.wait_for_selector(".run.chosen[data-node='3']")
    page.hover(".run.chosen .token >> nth=0")
    assert "advantage" in page.locator(".tip").inner_text()
    page.hover("[data-node='1'] .token >> nth=0")
    assert "90.5 %" in page.locator(".tip .tops").inner_text()
    page.keyboard.press("x")
    page.wait_for_selector(".twins")


def test_keys_work_everywhere_and_the_theme_stays(window: Window):
    page = window.open("/step?run=growing&step=1")
    page.wait_for_selector("a.row-link")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "t1"
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent") == "t0"
    page.keyboard.press("t")
    page.wait_for_selector("body.body--dark")
    page.keyboard.press("?")
    page.wait_for_selector(".hint-keys >> text=light or dark")
    page.keyboard.press("Escape")
    page.wait_for_selector(".hint-keys", state="hidden")
    page.keyboard.press("/")
    page.keyboard.type("leaves>5")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=no prompt passes the filter")
    page.wait_for_selector("body.body--dark")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("u")
    page.wait_for_selector("h1:has-text('growing')")


PLACES = (
    "/", "/run?run=hostile", "/step?run=hostile&step=1", "/tree?run=hostile&step=1&tree=t0&node=3&colour=entropy",
    "/pair?run=hostile&step=1&tree=t0&a=3&b=6", "/search?run=hostile&step=1&q=script", "/findings?run=hostile",
    f"/step?run={quote(MARKUP)}", f"/search?run=hostile&step=1&q=%22{quote(MARKUP)}%22",
    f"/tree?run=hostile&step=1&tree={quote(MARKUP)}",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_text_is_text_wherever_it_is_shown(window: Window, viewer: Viewer, place: str):
    finding = {"step": 1, "name": MARKUP, "severity": MARKUP, "message": MARKUP, "numbers": {MARKUP: MARKUP},
               "nodes": [{"step": 1, "tree": MARKUP, "node": 3}], "fix": MARKUP}  # fmt: skip
    (viewer.folder / "hostile" / "findings.jsonl").write_text(json.dumps(finding) + "\n")
    page = window.open(place)
    if place.startswith("/tree") and "t0" in place:
        page.wait_for_selector(".icicle[data-drawn]")
        for node in range(7):
            page.mouse.move(*rectangle(page, f"n{node}"))
            page.wait_for_selector(f".rect-tip[data-key=n{node}]")
        page.hover(".run.chosen .token >> nth=0")
        page.click("summary")
    assert "<script>window.planted=1</script>" in page.locator("body").inner_text()
    assert page.evaluate("window.planted") is None
    assert page.locator(".page img, .page script, .page b, .tip img, .rect-tip img, .q-dialog img").count() == 0


def test_an_empty_run_and_damaged_files_say_one_sentence(window: Window):
    for place, words in (
        ("/run?run=empty", "holds no rollouts yet"), ("/search?run=empty", "holds no rollouts yet"),
        ("/findings?run=empty", "rolltree doctor"), ("/step?run=broken&step=1", "is damaged or half-written"),
        ("/tree?run=broken&step=1&tree=t0", "is damaged or half-written"),
        ("/run?run=broken", "metrics.jsonl is damaged"),
        ("/run?run=bad.jsonl", "line 1, field 'role': is missing"), ("/step?run=nobody", "unknown run 'nobody'"),
        ("/step?run=hostile&step=x", "is not a whole number"),
        ("/tree?run=hostile&step=1&tree=t0&node=99", "has no node 99"),
    ):  # fmt: skip
        page = window.open(place)
        page.wait_for_selector(f"text={words}")
        assert "Traceback" not in page.content()


def test_other_programs_nodes_are_shown(window: Window):
    page = window.open("/step?run=nodes.jsonl")
    page.click("a.row-link >> nth=0")
    page.wait_for_selector(".icicle[data-drawn='7']")
    assert "token ids" in page.locator(".page").inner_text()
    page = window.open("/tree?run=forest&tree=columns")
    page.wait_for_selector(".icicle[data-drawn='7']")


def test_pages_follow_a_run_that_is_still_training(window: Window, viewer: Viewer):
    tree = window.page.context.new_page()
    tree.goto(window.address + "/tree?run=growing&step=1&tree=t0")
    tree.wait_for_selector(".icicle[data-drawn]")
    page = window.open("/run?run=growing")
    page.wait_for_selector("a.row-link:has-text('step 1')")
    folder = viewer.folder / "growing"
    add_step(folder, 5)
    with (folder / "metrics.jsonl").open("a") as sink:
        sink.write(json.dumps(a_line(5)) + "\n")
    page.wait_for_selector("a.row-link:has-text('step 5')")
    tree.wait_for_selector("text=step 5 is in")


def test_nothing_outside_the_runs_is_served(viewer: Viewer, tmp_path_factory: pytest.TempPathFactory):
    secret = viewer.folder / "secret.txt"
    secret.write_text("planted secret")
    parts = urlsplit(viewer.address)
    climb = "/".join([".."] * 12)
    full = str(secret).lstrip("/")
    for place in (
        f"/{climb}/{full}", f"/{quote(climb, safe='')}%2F{quote(full, safe='')}", f"/_nicegui/{climb}/{full}",
        f"/_nicegui/auto/static/{climb}/{full}", f"/run?run={climb}/{full}", f"/step?run=hostile&step={climb}/{full}",
        "/run?run=..", "/hostile/config.json", "/secret.txt", f"/findings?run=hostile/{climb}/{full}",
        f"/tree?run=hostile&step=1&tree={climb}/{full}",
    ):  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=PATIENCE / 1000)
        connection.request("GET", place)
        body = connection.getresponse().read()
        assert b"planted secret" not in body, place
        connection.close()


def test_beyond_this_machine_a_token_opens_pages_and_their_socket(
    started: Callable[..., Viewer], viewer: Viewer, browser: Any
):
    there = started(viewer.folder / "growing", "--host", "0.0.0.0", "--token", "right-token")
    parts = urlsplit(there.address)
    assert parts.query == "token=right-token"
    address = f"http://127.0.0.1:{parts.port}"
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    assert page.goto(f"{address}/run").status == 401
    assert page.goto(f"{address}/run?token=wrong").status == 401
    assert page.goto(f"{address}/_nicegui_ws/socket.io/?EIO=4&transport=polling").status == 401
    page.goto(f"{address}/tree?step=1&tree=t0&node=3&token=right-token")
    page.wait_for_selector(".icicle[data-drawn]")
    page.wait_for_function("window.socket?.connected && !document.querySelector('.waiting')")
    assert "token" not in query(page)
    page.keyboard.press("ArrowUp")
    page.wait_for_selector(".run.chosen[data-node='2']")
    context.close()


@pytest.mark.slow
def test_a_million_nodes_open(started: Callable[..., Viewer], browser: Any, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("huge")
    nodes = huge(folder)
    there = started(folder / "run")
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{there.address}/step?step=1&sort=reward_std")
    page.wait_for_selector(f"text={nodes:,} nodes")
    page.click("a.row-link >> nth=0")
    page.wait_for_selector(".icicle[data-drawn='7']")
    page.wait_for_selector(".run.policy .token")
    context.close()
