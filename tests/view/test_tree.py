"""What a tree's page says beside its nodes: marks, folding, data that is there, and how two leaves differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.analysis.text import Pieces
from rolltree.task.protocol import EXPECTED, Item, expected
from rolltree.tree import Forest, Tree
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.shape import ends
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import save
from rolltree.view.differ import differing, first_difference, sides
from rolltree.view.fork import parting
from rolltree.view.icicle import icicle
from rolltree.view.model import node_facts, path_strip
from rolltree.view.outline import Outline, outline
from rolltree.view.prompts import by_spread, metrics, neighbours
from tests.view.forests import a_tree

NONE = Pieces(None)


def opened(folder: Path, *trees: Tree) -> Outline:
    return outline(open_forest(save(Forest(list(trees)), folder)), trees[0].id)


def test_rectangles_are_marked_with_what_became_of_their_nodes(tmp_path: Path):
    tree = Tree("t", [0])
    stem = tree.extend(0, [1], status="done")
    pruned = tree.extend(stem, [2])
    tree.prune(pruned, "too low")
    tree.extend(stem, [3], status="done", finish="length")
    tree.extend(stem, [4], status="done", role="splice", birth="splice", forced=True)
    tree.extend(stem, [5], status="failed")
    inner = tree.extend(stem, [6], status="done", finish="length")
    tree.extend(inner, [7], status="done", finish="eos")
    drawn = {r.node: r for r in icicle(opened(tmp_path / "f", tree), "author").rects}
    assert {node: rect.marks for node, rect in drawn.items()} == {
        0: (), 1: ("fork",), 2: ("pruned",), 3: ("truncated",), 4: ("spliced", "forced"), 5: ("failed",), 6: (), 7: (),
    }  # fmt: skip
    assert "forked into 5" in drawn[1].lines
    assert "cut off at the length limit" in drawn[3].lines
    assert "spliced in, forced: not sampled by the policy" in drawn[4].lines


def test_chains_of_turns_are_one_rectangle_unless_every_turn_is_asked_for(tmp_path: Path):
    tree = Tree("t", [0])
    for _ in range(2):
        above = tree.root
        for turn in range(3):
            above = tree.extend(above, [1 + turn], status="done")
            above = tree.extend(above, [9], role="env", status="done")
    rows = opened(tmp_path / "f", tree)
    drawn = icicle(rows, "author")
    assert [(r.label, r.leaves) for r in drawn.rects] == [("0", 2), ("6 (3 turns)", 1), ("12 (3 turns)", 1)]
    assert drawn.holder(3) == "n6"
    assert len(icicle(rows, "author", turns=True).rects) == 13


@pytest.mark.parametrize("selected", [None, 150, 199, 200])
def test_what_lies_too_deep_is_folded_and_the_way_to_a_chosen_node_is_kept(tmp_path: Path, selected: int | None):
    tree = Tree("comb", [0])
    above = tree.root
    for _ in range(100):  # odd ids go on, even ids are leaves beside them
        deeper = tree.extend(above, [1], status="done")
        tree.extend(above, [2], status="done")
        above = deeper
    rows = opened(tmp_path / "f", tree)
    row = None if selected is None else rows.row(selected)
    drawn = icicle(rows, "author", selected=row, levels=12)
    assert drawn.levels <= 13
    assert (drawn.nodes, drawn.leaves) == (201, 101)
    if selected is not None:
        assert drawn.holder(selected) == f"n{selected}"
    assert sum(r.leaves for r in drawn.rects if not r.above) == 101
    own = {r.key: r for r in drawn.rects}
    below: dict[str, list[tuple[int, int]]] = {}
    for rect in drawn.rects:
        below.setdefault(rect.above, []).append((rect.at, rect.leaves))
    for key, parts in below.items():
        if key:
            assert sum(leaves for _, leaves in parts) == own[key].leaves
            at = own[key].at
            for start, leaves in sorted(parts):
                assert start == at, "side by side, without gaps"
                at += leaves


def test_entropies_that_the_trainer_noted_colour_what_the_engine_left_out(tmp_path: Path):
    tree = Tree("t", [0])
    one = tree.extend(0, [1, 2], logp=np.array([-1, -2], np.float32), status="done")
    one.notes |= {TRAINER_ENTROPY: [0.5, None], TRAINER_LOGP: [-1.5, None]}
    other = tree.extend(0, [3], entropy=np.array([2.0], np.float32), status="done")
    other.notes[TRAINER_ENTROPY] = [9.0]
    tree.extend(0, [4], status="done")
    rows = opened(tmp_path / "f", tree)
    assert rows.colourings == ("author", "entropy", "mismatch")
    np.testing.assert_allclose(rows.values("entropy"), [np.nan, 0.5, 2.0, np.nan])
    np.testing.assert_allclose(rows.values("mismatch"), [np.nan, 0.5, np.nan, np.nan])
    assert rows.scale("entropy").high == 2.0
    drawn, found = path_strip(rows, [0, 1], NONE, "entropy")
    assert drawn.scale == rows.scale("entropy"), "one scale a tree, whatever path is shown"
    assert drawn.runs[1].facts["entropy"] == [0.5, None]
    assert "entropy" not in drawn.runs[0].facts
    assert metrics(rows.archive)["entropy"](rows.archive).tolist() == [1.25]
    assert not {TRAINER_ENTROPY, TRAINER_LOGP} & {name for name, _ in node_facts(rows, 1, found[1])}


def test_a_path_of_many_nodes_keeps_both_ends(tmp_path: Path):
    tree = Tree("t", [0])
    for i in range(900):
        tree.extend(i, [i], status="done")
    rows = opened(tmp_path / "f", tree)
    drawn, found = path_strip(rows, rows.path(900), NONE, "author")
    assert (drawn.tokens, drawn.hidden, len(found)) == (901, 501, 400)
    assert (drawn.runs[0].node, drawn.runs[-1].node) == (0, 900)


def test_trees_stand_by_spread_and_say_how_many_leaves_are_right(tmp_path: Path):
    same, split = a_tree("same"), a_tree("split")
    for leaf in same.leaves():
        leaf.scores["reward"] = 1.0
    rows = opened(tmp_path / "f", same, split)
    assert by_spread(rows.archive) == ["split", "same"]
    assert neighbours(rows.archive, "split") == (None, "same")
    assert (rows.solved, Outline(rows.archive, 1).solved) == ((3, 3), (1, 2))


def test_a_pair_begins_with_its_first_difference(tmp_path: Path):
    tree = Tree("t", [0])
    left = tree.extend(0, [1, 2, 3, 9], logp=np.log(np.array([1, 1, 0.25, 1], np.float32)), status="done")
    right = tree.extend(0, [1, 2, 4, 5, 9], logp=np.log(np.array([1, 1, 0.75, 1, 1], np.float32)), status="done")
    left.scores["reward"], right.scores["reward"] = 0.0, 1.0
    short = tree.extend(0, [1, 2], status="done")
    far = tree.extend(0, [7, 1, 2, 7, 3, 7], status="done")
    rows = opened(tmp_path / "f", tree)
    one, two = sides(rows, parting(rows, rows.row(left.id), rows.row(right.id)), NONE, "author")
    found = first_difference(one, two, NONE)
    assert found is not None
    assert found.alike == 2
    assert (found.left.text, found.left.chance, found.left.reward) == ("“3 ”", "25.0 %", "0")
    assert (found.right.text, found.right.chance, found.right.reward) == ("“4 ”", "75.0 %", "1")
    assert [run.same for run in one.strip.runs] == [[True, True, False, True]]
    assert [run.same for run in two.strip.runs] == [[True, True, False, False, True]]
    assert sides(rows, parting(rows, rows.row(left.id), rows.row(far.id)), NONE, "author")[0].strip.runs[0].same == [
        False, False, False, False,
    ], "tokens that stand elsewhere on the other side are not the same"  # fmt: skip
    told = {name: (a, b) for name, a, b in differing(rows, one, two)}
    assert told["actions"] == ("4", "5")
    assert "written by" not in told
    one, two = sides(rows, parting(rows, rows.row(left.id), rows.row(short.id)), NONE, "author")
    found = first_difference(one, two, NONE)
    assert found is not None
    assert (found.alike, found.right.text) == (2, "ends here")
    one, two = sides(rows, parting(rows, rows.row(left.id), rows.row(left.id)), NONE, "author")
    assert first_difference(one, two, NONE) is None


def test_a_tree_notes_the_answer_that_its_item_asks_for():
    assert expected(Item("i", "1+1=", 2)) == {EXPECTED: "2"}
    assert expected(Item("i", "", "x" * 401)) == {}
    assert expected(Item("i", "", {"a": 1})) == {}


@given(st.lists(st.integers(0, 30), max_size=60), st.booleans())
def test_ends_of_deep_and_of_wide_forests_are_those_of_the_tree_walk(above: list[int], chain: bool):
    depth: list[int] = []
    for pick in above:  # depth first: each row hangs from one on the path to the row before it
        depth.append(0 if not depth else depth[-1] + 1 if chain and pick else min(pick, depth[-1] + 1))
    parent = [max((j for j in range(i) if depth[j] == d - 1), default=-1) if d else -1 for i, d in enumerate(depth)]
    want = [next((j for j in range(i + 1, len(depth)) if depth[j] <= d), len(depth)) for i, d in enumerate(depth)]
    assert ends(np.array(parent, np.int64), np.array(depth, np.int64)).tolist() == want
    wide = depth + [0] * (40 * len(depth))
    found = ends(np.array(parent + [-1] * (40 * len(depth)), np.int64), np.array(wide, np.int64))
    assert found.tolist() == want + list(range(len(depth) + 1, len(wide) + 1))
