"""What-ifs of a real run: sampled by the command, saved beside the run, watched and cancelled in a real browser."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rolltree.analysis import whatif_given
from rolltree.analysis.source import open_source
from rolltree.analysis.text import Pieces
from rolltree.analysis.whatif_given import weights_of
from rolltree.analysis.whatif_grow import WhatIfQuestion, grow_whatif
from rolltree.analysis.whatif_saved import SavedQuestion, saved_whatif, shown_whatif, start_saving
from rolltree.cli import main
from rolltree.errors import RolltreeError
from rolltree.tree import Tree
from rolltree.tree.store import parquet
from rolltree.tree.store.parquet import load
from rolltree.view.pages.whatif_grown import can_be_cancelled
from rolltree.view.whatif_jobs import WhatIfJob, WhatIfJobs
from tests.view.conftest import Viewer, Window, rectangle


@pytest.fixture
def copied(real_run: Path, tmp_path: Path) -> Path:
    """The real run, for this test alone."""
    return Path(shutil.copytree(real_run, tmp_path / "run"))


def digest(folder: Path) -> str:
    """Of every file of a run but its what-ifs."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and "whatif" not in f.parts)
    return hashlib.sha256(b"".join(str(f).encode() + f.read_bytes() for f in files)).hexdigest()


def a_leaf(run: Path, step: int = 2) -> tuple[str, int]:
    """A tree of a step and a leaf in it with tokens to cut."""
    for tree in load(run / "forests" / f"step={step}"):
        for leaf in tree.leaves():
            if len(leaf) > 4 and leaf.role == "policy":
                return tree.id, leaf.id
    raise AssertionError("no leaf has more than four tokens")


def asked(capsys: pytest.CaptureFixture[str], run: Path, *options: str) -> dict[str, Any]:
    assert main(["whatif", str(run), *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_samples_beside_the_run_and_repeats_itself(copied: Path, capsys: pytest.CaptureFixture[str]):
    before = digest(copied)
    tree, leaf = a_leaf(copied)
    place = ("--tree", tree, "--node", str(leaf), "--token", "3", "--n", "3")
    first, again = asked(capsys, copied, *place), asked(capsys, copied, *place)
    other = asked(capsys, copied, *place, "--seed", "1", "--credit", "grpo", "--policy", "0")
    assert digest(copied) == before, "the run itself is as it was"
    grown = [load(copied / "whatif" / name / "forest")[tree] for name in ("001", "002", "003")]
    new = [
        [t[n].actions.tolist() for n in t.nodes if n > r["known"]]
        for t, r in zip(grown, (first, again, other), strict=True)
    ]
    assert new[0] == new[1] != new[2]
    old = load(copied / "forests" / "step=2")[tree]
    start = grown[0][first["start"]]
    assert start.actions.tolist() == old[leaf].actions[:3].tolist()
    assert grown[0].prefix(leaf).tolist() == old.prefix(leaf).tolist()
    fresh = [b for b in first["branches"] if b["new"]]
    assert len(fresh) == first["judged_new"] == 3
    assert all(b["credit_before"] is None and b["credit_now"] is not None for b in fresh)
    kept = "the model before the first step; the weights after step 1, which wrote this place, were not kept"
    assert first["said"] == f"continued by {kept}"
    assert other["said"].startswith("continued by the model before the first step")
    assert main(["whatif", str(copied), "--show", "001"]) == 0
    assert "Behind this place" in capsys.readouterr().out
    assert main(["whatif", str(copied)]) == 0
    assert "003" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "said"), [
    (["--node", "99999"], "has no node 99999"), (["--node", "1", "--token", "9999"], "none numbered 9999"),
    (["--node", "1", "--n", "0"], "--n 0 makes no sense"), (["--node", "1", "--credit", "gpro"], "unknown credit"),
    (["--node", "1", "--policy", "77"], "has no checkpoint of step 77"), (["--node", "1", "--name", "../x"], "letters"),
    (["--node", "1", "--task", "arithmetic"], "is not among the first 50 of arithmetic"),
    (["--show", "9"], "has no what-if '9'"),
    (["--node", "1", "--temperature", "-1"], "samples nothing"), (["--node", "1", "--engine", "locl"], "locl"),
    (["--node", "1", "--tree", "nothing"], "nothing"),
])  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence_and_leaves_nothing(
    real_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
):
    monkeypatch.setattr(whatif_given, "DRAWN", 50)
    tree = [] if "--tree" in options else ["--tree", a_leaf(real_run)[0]]
    assert main(["whatif", str(real_run), *tree, *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (real_run / "whatif").exists()


def test_an_environment_goes_on_from_its_replayed_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "grid"
    assert main(["rollout", "grpo", "--task", "grid", "--items", "1", "--group", "2", "--out", str(out), "--json"]) == 0
    (tree,) = load(out)
    env = next(n for n in tree if n.role == "env" and not n.is_leaf)
    capsys.readouterr()
    given = ("--task", "grid", "--policy", "nano", "--credit", "grpo", "--n", "2")
    made = asked(capsys, out, "--node", str(env.id), *given)
    (grown,) = load(out / "whatif" / "001" / "forest")
    assert made["judged_new"] == 2
    assert grown[env.id].children[:1] == tree[env.id].children[:1]
    assert len(grown[env.id].children) == 3
    assert any(n.role == "env" and n.id > made["known"] for n in grown), "the environment answered the new turns"
    tree[env.id].actions = tree[env.id].actions[::-1].copy()  # an environment that does not answer as it did
    parquet.save([tree], out, overwrite=True, states="drop")
    assert main(["whatif", str(out), "--node", str(env.id), *given]) == 2
    told = capsys.readouterr().err
    assert "the environment of grid cannot be brought back to where node" in told
    assert main(["whatif", str(out), "--node", "1", "--policy", "nano", "--credit", "grpo"]) == 2
    assert "name it with --task" in capsys.readouterr().err


def test_leaves_that_a_filter_dropped_have_a_credit_all_the_same(tmp_path: Path):
    """A group of one reward is dropped whole; with other outcomes beside it, it would teach."""
    tree = Tree("t", [1, 2])
    for _ in range(2):
        leaf = tree.extend(0, [3, 4], status="done", scores={"reward": 1.0}, usage="dropped: zero variance")
    parquet.save([tree], tmp_path / "forest")
    source = open_source(tmp_path / "forest")
    tree.extend(0, [5, 6], status="done", scores={"reward": 0.0})
    about = SavedQuestion(None, "t", leaf.id, 0, 1, 0, "local", 1.0, "continued", "rloo", "", 0, leaf.id, "done")
    start_saving(source, about, tree)
    made = shown_whatif(source, saved_whatif(source, "001"), Pieces(None))
    assert made.trouble == ""
    assert [b.branch.before for b in made.branches[1:3]] == [0.0, 0.0]
    assert [b.branch.after for b in made.branches[1:]] == [0.5, 0.5, -1.0]


def test_cancelled_it_keeps_what_was_written(copied: Path):
    source, (tree, leaf) = open_source(copied), a_leaf(copied)

    async def interrupted() -> None:
        growing = asyncio.create_task(grow_whatif(source, WhatIfQuestion(2, tree, leaf, n=200)))
        while not (copied / "whatif" / "001" / "about.json").exists():
            await asyncio.sleep(0)
        growing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await growing

    asyncio.run(interrupted())
    saved = saved_whatif(source, "001")
    assert saved.about.now == "cancelled"
    new = [n for n in load(saved.folder / "forest")[tree] if saved.about.fresh(n.id)]
    assert {n.status for n in new if n.is_leaf} <= {"paused", "done"}


def test_weights_are_those_that_wrote_the_place_or_say_that_they_are_not(copied: Path):
    source, (tree, leaf) = open_source(copied), a_leaf(copied)
    found = source.archive(2).tree(tree)
    assert weights_of(source, 2, found, leaf, 0).written == 1
    (copied / "checkpoints" / "step-000001").mkdir(exist_ok=True)
    near = weights_of(source, 2, found, leaf, 0)
    assert near.version == 1
    assert near.sentence == "continued by the checkpoint after step 1, which wrote this place"
    with pytest.raises(RolltreeError, match="does not say which policy"):
        weights_of(open_source(copied / "forests"), 2, found, leaf, 0)


def test_one_grows_at_a_time(real_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    class Stuck:
        returncode = None

        def poll(self) -> int | None:
            return self.returncode

        def terminate(self) -> None:
            self.returncode = -15

    jobs, source = WhatIfJobs(), open_source(real_run)
    with (tmp_path / "said").open("w+b") as said:
        said.write(b"noise\nrolltree: node 9 is no node\n")
        jobs.last = WhatIfJob("treepo", "001", Stuck(), said)  # pyright: ignore[reportArgumentType]
        with pytest.raises(RolltreeError, match="what-if 001 of treepo is growing; wait for it or cancel it"):
            jobs.start(source, {})
        offered = {now: can_be_cancelled(jobs.last, now) for now in ("starting", "growing", "done", "failed")}
        assert offered == {"starting": True, "growing": True, "done": False, "failed": False}, "saved, but not yet gone"
        jobs.last.cancel()
        assert not can_be_cancelled(jobs.last, "growing")
        assert not jobs.last.growing
        assert jobs.last.trouble == ""
        jobs.last.process.returncode = 2
        assert jobs.last.trouble == "node 9 is no node"
        jobs.last = None


def test_from_a_token_to_new_branches_in_the_browser(started: Callable[..., Viewer], browser: Any, copied: Path):
    viewer, (tree, leaf) = started(copied), a_leaf(copied)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    window = Window(page, viewer.address)
    page.on("pageerror", lambda error: window.errors.append(str(error)))
    place = f"run=run&step=2&tree={tree}&node={leaf}"
    window.open(f"/tree?{place}")
    page.click(".whatif-link")
    page.wait_for_selector(".begin")
    page.wait_for_selector(f".run[data-node='{leaf}'] .token")
    page.click(f".run[data-node='{leaf}'] .token >> nth=2")
    page.wait_for_function("location.search.includes('token=2')")
    page.wait_for_selector(".token.marked")
    page.wait_for_selector(".begin")
    # An address alone, which another site could open, starts nothing.
    window.open(f"/whatif?{place}&token=2&n=3&begin=1&saved=")
    assert not (copied / "whatif").exists()
    # What stands in a field is refused as it stands, also where the field has been left: nothing is put right unseen.
    for field, value, said in (
        (".from-token", "9999", "none numbered 9999"), (".from-token", "1.5", "1.5 is no whole number"),
        (".from-token", "", "nothing is no whole number"), (".how-many", "0", "give 1 to 512"),
    ):  # fmt: skip
        page.fill(".from-token input", "2")
        page.fill(f"{field} input", value)
        page.focus(".which-engine input")
        page.evaluate("() => new Promise(done => setTimeout(done))")  # until the field has told that it was left
        page.click(".begin")
        page.wait_for_selector(f".trouble:has-text('{said}')")
        assert page.input_value(f"{field} input") == value
    assert not (copied / "whatif").exists()
    page.fill(".how-many input", "3")
    page.focus(".begin")
    page.keyboard.press("Enter")
    page.wait_for_function("location.search.includes('saved=001')")
    page.wait_for_selector(".whatif-state.done")
    assert page.locator(".cancel").count() == 0
    assert "of the new ones" in page.locator(".whatif-sentence").inner_text()
    cells = page.locator("table.grid tbody tr").all_inner_texts()
    fresh = [c for c in cells if c.startswith("new node")]
    assert len(fresh) == 3
    assert all("\t–\t" in c for c in fresh), "new branches had no credit before"
    assert "+ sampled in this what-if" in page.locator(".marks").inner_text()
    new = int(fresh[0].split("\t")[0].removeprefix("new node "))
    page.mouse.move(*rectangle(page, f"n{new}"))
    page.wait_for_selector(f".rect-tip[data-key=n{new}]")
    page.click(f"a:text-is('new node {new}')")
    page.wait_for_selector(f".run.chosen[data-node='{new}']")
    assert page.locator(".whatif-link").count() == 0
    window.open("/whatif?run=run")
    assert page.locator("tbody tr").count() == 1
    window.open(f"/whatif?{place}&token=2")
    page.fill(".which-engine input", "http://127.0.0.1:9")
    page.click(".begin")
    page.wait_for_function("location.search.includes('saved=002')")
    page.wait_for_selector(".trouble:has-text('no server answers')")
    assert window.errors == []
    page.close()
