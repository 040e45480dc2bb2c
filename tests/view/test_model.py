"""What pages show, computed without pages: every number against the same number from node objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.analysis.source import open_sources
from rolltree.analysis.text import Pieces, pieces_of
from rolltree.errors import RolltreeError
from rolltree.tree import Forest, Tree
from rolltree.tree.store import jsonl
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import save
from rolltree.tree.views import leaf_counts
from rolltree.view.colours import COLOURINGS, contrast, scale
from rolltree.view.differ import sides
from rolltree.view.findings import findings
from rolltree.view.fork import other_leaf, parting
from rolltree.view.icicle import icicle
from rolltree.view.links import link, whole
from rolltree.view.model import excerpts, leaves, node_facts, path_strip
from rolltree.view.outline import Outline, outline
from rolltree.view.pages import frame
from rolltree.view.prompts import metrics, neighbours, prompts
from rolltree.view.query import parse
from rolltree.view.rows import events_of, head, records
from rolltree.view.runs import chosen, curve, lines_of, metric_names, steps, summary
from rolltree.view.search import search
from rolltree.view.words import event_text, shown
from tests.view.forests import MARKUP, a_run, a_tree, add_step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    (source,) = open_sources([a_run(tmp_path_factory.mktemp("runs") / "first", hostile=True)])
    return source


def saved(folder: Path, *trees: Tree):
    return open_forest(save(Forest(list(trees)), folder))


@st.composite
def bushes(draw: st.DrawFn) -> Tree:
    tree = Tree("bush", [0])
    for _ in range(draw(st.integers(0, 25))):
        above = draw(st.integers(0, len(tree) - 1))
        reward = draw(st.sampled_from([None, 0.0, 1.0, -0.5]))
        tree.extend(above, [1] * draw(st.integers(0, 3)), status="done",
                    scores={} if reward is None else {"reward": reward})  # fmt: skip
    return tree


@settings(max_examples=40, deadline=None)
@given(bushes(), st.integers(1, 12))
def test_an_icicle_loses_no_leaf_however_it_is_folded(tmp_path_factory: pytest.TempPathFactory, tree: Tree, limit: int):
    rows = outline(saved(tmp_path_factory.mktemp("bush") / "f", tree), "bush")
    counts = leaf_counts(tree)
    assert {int(i): int(n) for i, n in zip(rows.ids, rows.leaf_count, strict=True)} == counts
    selected = len(rows) - 1
    drawn = icicle(rows, "reward", selected=selected, limit=limit)
    below: dict[str, int] = {}
    for rect in drawn.rects:
        below[rect.above] = below.get(rect.above, 0) + rect.leaves
    assert below[""] == len(tree.leaves())
    own = {rect.key: rect.leaves for rect in drawn.rects}
    assert all(own[key] == count for key, count in below.items() if key)
    assert drawn.holder(int(rows.ids[selected]))
    for row, node in enumerate(rows.ids):
        found = [n.scores["reward"] for n in tree.leaves(int(node)) if "reward" in n.scores]
        assert rows.rewards[row] == pytest.approx(np.mean(found) if found else np.nan, nan_ok=True)


def test_a_long_run_without_forks_is_one_rectangle(tmp_path: Path):
    tree = Tree("chain", [0])
    for i in range(60):
        tree.extend(i, [1, 1])
    drawn = icicle(outline(saved(tmp_path / "f", tree), "chain"), "reward")
    assert len(drawn.rects) == 1
    assert "61 in a row" in drawn.rects[0].lines[0]
    assert drawn.holder(30) == drawn.rects[0].key


def test_prompt_metrics_are_those_of_the_trees(tmp_path: Path):
    one, two = a_tree("t0"), Tree("t1", [1, 2])
    two.extend(0, [3], status="failed")
    archive = saved(tmp_path / "f", one, two)
    got = {name: metric(archive) for name, metric in metrics(archive).items()}
    assert got["reward"].tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert got["reward_std"].tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert got["best"].tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert got["leaves"].tolist() == [3, 1]
    assert got["tokens"].tolist() == [sum(len(n) for n in t if n.role == "policy") for t in (one, two)]
    assert got["forks"].tolist() == [1, 0]
    assert got["depth"].tolist() == [4, 1]
    assert got["pruned"].tolist() == [1, 0]
    assert got["failed"].tolist() == [0, 1]
    entropy = np.concatenate([n.entropy for n in one if n.entropy is not None])
    assert got["entropy"][0] == pytest.approx(entropy.mean(), rel=1e-5)
    gaps = np.concatenate(
        [n.sampling_logprob - n.logp for n in one if n.sampling_logprob is not None and n.logp is not None]
    )
    assert got["mismatch"][0] == pytest.approx(np.abs(gaps).mean(), rel=1e-5)
    gain, loss, weight = (
        sum(float(getattr(n, k).sum()) for n in one if n.gain is not None) for k in ("gain", "loss", "weight")
    )
    assert got["advantage"][0] == pytest.approx((gain + loss) / weight)
    versions = np.concatenate([n.version for n in one if n.version is not None])
    assert got["staleness"][0] == pytest.approx(4 - versions.mean())
    assert got["score.format"][0] == 1.0


def test_prompts_are_sorted_filtered_and_paged_with_missing_numbers_last(tmp_path: Path):
    trees = [a_tree(f"t{i}") for i in range(5)]
    trees[3].leaves()[0].scores["reward"] = 0.5
    trees.append(Tree("none", [1]))
    archive, pieces = saved(tmp_path / "f", *trees), Pieces(None)
    assert [p.tree for p in prompts(archive, pieces, sort="reward", descending=False).rows][:2] == ["t3", "t0"]
    assert prompts(archive, pieces, descending=True).rows[-1].tree == "none"
    assert [p.tree for p in prompts(archive, pieces, query="reward<0.5 leaves>=3").rows] == ["t3"]
    assert [p.tree for p in prompts(archive, pieces, query='"item t4"').rows] == ["t4"]
    second = prompts(archive, pieces, page=1, size=4)
    assert (second.page, second.pages, len(second.rows)) == (1, 2, 2)
    assert prompts(archive, pieces, page=99, size=4).page == 1
    with pytest.raises(RolltreeError, match="did you mean 'reward'"):
        prompts(archive, pieces, sort="rewards")
    with pytest.raises(RolltreeError, match="is not a number"):
        prompts(archive, pieces, query="reward>high")
    assert neighbours(archive, "t1") == ("t0", "t2")


def test_a_path_has_its_text_colours_numbers_and_alternatives(run):
    archive = run.archive(1)
    tree = outline(archive, "t1")
    rows = tree.path(tree.row(3))
    pieces = pieces_of(run)
    strips = {c: path_strip(tree, rows, pieces, c)[0] for c in COLOURINGS}
    whole_text = "".join("".join(r.texts) for r in strips["entropy"].runs)
    assert whole_text == f"a prompt {MARKUP}call {MARKUP}tool {MARKUP}good"
    prompt, call, answer, good = strips["entropy"].runs
    assert set(prompt.shades) == {-1}
    assert call.shades == sorted(call.shades)
    assert call.shades[-1] == 32
    assert [t for t, _ in call.top[0]] == ["c", "a", "b"]
    assert call.facts["entropy"][0] == 1.0
    assert "step reward 0.5" in answer.title
    assert json.loads(answer.state) == {"board": MARKUP, "turn": 1}
    assert good.facts["advantage"] == [1.0] * 4
    assert strips["mismatch"].runs[1].shades[0] == 32
    assert set(strips["staleness"].runs[3].shades) == {0}
    assert strips["author"].runs[2].shades[0] == strips["author"].scale.names.index("env")
    assert set(strips["reward"].runs[3].shades) == {32}


def test_a_trainers_log_probs_make_the_gap_where_they_are_recorded(tmp_path: Path):
    tree = Tree("t", [0])
    tree.extend(0, [1, 2], logp=np.array([-1, -2], np.float32), sampling_logprob=np.array([-1, -2], np.float32),
                notes={"trainer_logp": [-1.5, -2.0]})  # fmt: skip
    drawn, _ = path_strip(outline(saved(tmp_path / "f", tree), "t"), [0, 1], Pieces(None), "mismatch")
    assert drawn.runs[1].facts["log p (trainer)"] == [-1.5, -2.0]
    assert drawn.scale.high == 0.5
    assert "engine" in drawn.note
    assert "trainer" in drawn.note


def test_long_paths_keep_both_ends(tmp_path: Path):
    tree = Tree("t", [0])
    tree.extend(0, list(range(7000)))
    drawn, _ = path_strip(outline(saved(tmp_path / "f", tree), "t"), [0, 1], Pieces(None), "author")
    assert drawn.hidden == 1001
    assert sum(len(r.texts) for r in drawn.runs) == 6000
    assert drawn.runs[1].texts[-1] == "6999 "


def test_two_sides_share_one_scale_and_part_at_the_fork(run):
    tree = outline(run.archive(1), "t0")
    parted = parting(tree, tree.row(3), tree.row(6))
    assert [int(tree.ids[r]) for r in parted.shared] == [0, 1, 2]
    assert [int(tree.ids[r]) for r in parted.right] == [5, 6]
    assert int(tree.ids[other_leaf(tree, tree.row(3)) or 0]) == 4
    left, right = sides(tree, parted, pieces_of(run), "advantage")
    assert left.strip.scale == right.strip.scale == tree.scale("advantage")
    assert (left.strip.scale.low, left.strip.scale.high) == (-1.0, 1.0)
    assert [leaf.node for leaf in leaves(tree)] == [3, 4, 6]


def test_records_and_events_come_without_their_tree_and_without_its_classes(run):
    archive = run.archive(2)
    found = records(archive, [archive.tree_start[2] + 3, archive.tree_start[1]])
    whole_tree = archive.tree("t2")
    assert found[0].node.actions.tolist() == whole_tree[3].actions.tolist()
    assert found[0].notes == whole_tree[3].notes
    assert found[1].node.role == "prompt"
    assert [(e.kind, e.why, dict(e.numbers)) for e in events_of(archive, 2)] == [
        (e.kind, e.why, dict(e.numbers)) for e in whole_tree.events
    ]
    assert head(archive, 2)["task"] == "words"
    facts = dict(node_facts(outline(archive, "t2"), 3, found[0]))
    assert facts["score reward"] == "1"
    assert facts["usage"] == "trained"


def test_decisions_are_told_with_their_numbers():
    fork, stop, prune = (event_text(e) for e in a_tree().events)
    assert fork.sentence == "Node 2 was forked into 3: entropy was high some words"
    assert ("entropy", "1.25") in fork.numbers
    assert fork.children == (3, 4, 5)
    assert stop.sentence == "Node 3 ended: answer"
    assert prune.sentence.startswith("Node 6 was pruned: below the bar")
    assert shown([1, 2.0, True, None]) == "1, 2, yes, –"


def test_search_finds_text_words_and_numbers(run):
    archive, pieces = run.archive(1), pieces_of(run)
    assert {h.node for h in search(archive, pieces, "wrong").hits} == {4}
    assert {h.node for h in search(archive, pieces, "role:env").hits} == {2}
    assert {h.node for h in search(archive, pieces, "status:pruned reward<1").hits} == set()
    assert {h.node for h in search(archive, pieces, "status:pruned").hits} == {6}
    assert {h.node for h in search(archive, pieces, "reward>0.5 finish:eos").hits} == {3}
    assert search(archive, pieces, "nowhere at all").note == "nothing matches"
    found = search(archive, pieces, "o", limit=2)
    assert (len(found.hits), found.matches) == (2, len(search(archive, pieces, "o").hits))
    assert found.matches > 2
    found = search(archive, pieces, "role:policy", limit=2)
    assert (len(found.hits), found.matches) == (2, len(search(archive, pieces, "role:policy").hits))
    (wrong,) = {(h.path, h.reward) for h in search(archive, pieces, "wrong").hits}
    assert wrong == ("0 › 1 › 2 › 4", 0.0)
    assert {h.reward for h in search(archive, pieces, "role:env").hits} == {0.5}
    assert "type what to look for" in search(archive, pieces, " ").note
    with pytest.raises(RolltreeError, match="unknown quantity"):
        search(archive, pieces, "colour:red")
    with pytest.raises(RolltreeError, match="a word, not a number"):
        search(archive, pieces, "role>3")
    assert parse('a "b c" d>=1').words == ("a", "b c")


def test_findings_are_read_in_order_of_gravity_and_found_by_tree(run):
    assert "rolltree doctor" in findings(run).note
    lines = [
        {"step": 1, "name": "mild", "severity": "warning", "message": "m", "numbers": {"x": 1}, "nodes": []},
        {"step": 2, "name": "grave", "severity": "bad", "message": MARKUP, "numbers": {}, "fix": "",
         "nodes": [{"step": 1, "tree": "t0", "node": 3}, {"step": 1, "tree": "t0", "node": None}]},
    ]  # fmt: skip
    path = run.path / "findings.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"half": ')
    try:
        found = findings(run)
        assert [f.name for f in found.found] == ["grave", "mild"]
        assert [nodes for _, nodes in found.of_tree(1, "t0")] == [[3]]
        assert found.of_tree(2, "t0") == []
        path.write_text("[1]\n")
        with pytest.raises(RolltreeError, match="line 1 is no finding"):
            findings(run)
    finally:
        path.unlink()


def test_runs_have_curves_steps_and_facts(run, tmp_path: Path):
    lines = lines_of(run)
    assert curve("a", lines, "reward/mean", "decoded").x == (100.0, 200.0)
    assert curve("a", lines, "reward/mean", "step").y == (0.25, 0.5)
    assert chosen(metric_names([lines]), ["no such"]) == ["eval/pass@1", "reward/mean", "policy/entropy"]
    assert [(s.step, s.saved) for s in steps(run)] == [(2, True), (1, True)]
    assert summary(run).facts["recipe"] == "grpo"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{")
    (bad,) = open_sources([tmp_path / "bad"])
    assert "cannot be read" in summary(bad).trouble
    (tmp_path / "worse").mkdir()
    (tmp_path / "worse" / "metrics.jsonl").write_text("nonsense\n")
    (worse,) = open_sources([tmp_path / "worse"])
    assert "metrics.jsonl is damaged" in summary(worse).trouble


def test_sources_have_distinct_names_and_follow_what_is_new(tmp_path: Path):
    first, second = a_run(tmp_path / "a" / "run", steps=1), a_run(tmp_path / "b" / "run", steps=1)
    sources = open_sources([first, second])
    assert [s.name for s in sources] == ["run", "b/run"]
    before = sources[0].stamp()
    assert sources[0].stamp() == before
    add_step(first, 2)
    assert sources[0].stamp() != before
    assert sources[0].steps() == [1, 2]
    with pytest.raises(RolltreeError, match="saved steps: 1, 2"):
        sources[0].archive(7)
    with pytest.raises(RolltreeError, match="there is no run at"):
        open_sources([tmp_path / "none"])
    (tmp_path / "text.txt").write_text("x")
    with pytest.raises(RolltreeError, match="is no file of nodes"):
        open_sources([tmp_path / "text.txt"])


def test_links_inside_a_run_do_not_lead_out_of_it(tmp_path: Path):
    outside, inside = a_run(tmp_path / "outside"), a_run(tmp_path / "inside", steps=1)
    (inside / "findings.jsonl").symlink_to(outside / "metrics.jsonl")
    (inside / "forests" / "step=9").symlink_to(outside / "forests" / "step=2")
    (source,) = open_sources([inside])
    with pytest.raises(RolltreeError, match="leads out of"):
        findings(source)
    with pytest.raises(RolltreeError, match="leads out of"):
        source.archive(9)


def test_other_programs_files_open_like_forests(tmp_path: Path):
    tree = a_tree()
    path = jsonl.write(Forest([tree]), tmp_path / "nodes.jsonl")
    saved(tmp_path / "f", tree)
    for file in (path, tmp_path / "f" / "nodes.parquet"):
        (source,) = open_sources([file])
        assert source.steps() == [None]
        archive = source.archive(None)
        assert archive.tree("t0")[3].scores == tree[3].scores
        assert archive.tree("t0")[1].top is not None
        assert pieces_of(source).note.startswith("these nodes name no tokenizer")
    path.write_text('{"tree": "t", "id": 0, "role": "prompt"}\n')
    with pytest.raises(RolltreeError, match="field 'actions': is missing"):
        open_sources([path])[0].steps()
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    with pytest.raises(RolltreeError, match="no Parquet file"):
        open_sources([tmp_path / "x.parquet"])[0].steps()


def test_characters_of_several_tokens_stand_at_the_last_of_them():
    table = {0: b"a", 1: b"\xc3", 2: b"\xa9", 3: b"z", 4: b"\xe2"}

    def decode(batch: list[list[int]]) -> list[str]:
        return [b"".join(table[i] for i in ids).decode("utf-8", "replace") for ids in batch]

    pieces = Pieces(decode, anchor=(0,))
    assert pieces.pieces(np.array([0, 1, 2, 3])) == ["a", "", "é", "z"]
    assert "".join(pieces.pieces(np.array([1, 2, 1, 2]))) == "éé"
    assert pieces.pieces(np.array([4, 3]))[1] == "z"
    assert pieces.alone(np.array([3, 0])) == ["z", "a"]
    assert Pieces(None).pieces(np.array([[0.5, 1.0]])) == ["[…] "]


def test_scales_cover_their_values_and_inks_read():
    assert scale("reward", np.array([np.nan])).high == 1.0
    assert scale("advantage", np.array([-3.0, 1.0])).low == -3.0
    used = scale("mismatch", np.array([-1.0, 0.0, 1.0]))
    assert used.index(np.array([-1.0, 0.0, 1.0, np.nan, 9.0])).tolist() == [0, 16, 32, -1, 32]
    for colouring in COLOURINGS:
        used = scale(colouring, np.array([0.0, 1.0]))
        assert min(contrast(a, b) for a, b in zip(used.palette, used.inks, strict=True)) >= 4.5, colouring
    assert contrast("#ffffff", "#000000") == pytest.approx(21)


def test_addresses_say_where_and_refuse_nonsense():
    assert link("tree", run="a b", step=None, tree="x/../y&z", node=0) == "/tree?run=a+b&tree=x%2F..%2Fy%26z&node=0"
    assert (whole("step", "12"), whole("step", "")) == (12, None)
    with pytest.raises(RolltreeError, match="is not a whole number"):
        whole("step", "../../etc")


def test_excerpts_are_short_and_on_one_line(run):
    tree: Outline = outline(run.archive(1), "t0")
    few = excerpts(tree, pieces_of(run))
    assert few(0).startswith("a prompt <script>")
    assert len(few(0)) <= 29


def test_what_came_while_a_page_was_first_drawn_is_drawn_next(monkeypatch: pytest.MonkeyPatch):
    looks: list[Callable[[], Awaitable[None]]] = []
    monkeypatch.setattr(frame.ui, "timer", lambda every, look, immediate: looks.append(look))
    drawn: list[str] = []

    async def redraw() -> None:
        drawn.append(now[0])

    now = ["with another run"]
    frame.watch(lambda: now[0], redraw, "as it was before the drawing")
    for _ in range(2):
        asyncio.run(looks[0]())
    assert drawn == ["with another run"]
    now[0] = "and one more"
    asyncio.run(looks[0]())
    assert drawn == ["with another run", "and one more"]
