"""Texts of any Unicode, halves of characters included, come back from every format as they were."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rolltree.tree import Forest, Tree
from rolltree.tree.store import jsonl
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.arrow import MARK
from rolltree.tree.store.parquet import load, save

odd = st.text(st.characters(max_codepoint=sys.maxunicode, exclude_categories=()), max_size=12).map(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
"""Surrogates, controls, marks of direction and what no plane has assigned included. Two halves side by side are the
character that they make: JSON knows no other reading."""


def forest(texts):
    id, task, item, key, why, note, score = texts
    tree = Tree(id or "t", [1, 2], task=task, item=item)
    node = tree.extend(0, [3], role="env", notes={note: note, "deep": [note, {"k": note}]}, scores={score: 1.0})
    node.state_key, node.actor = key, why
    tree.event("note", node, why, said=note)
    tree.notes[note] = note
    return Forest([tree])


def told(trees):
    return [
        (t.id, t.task, t.item, t.notes, [(e.kind, e.why, dict(e.numbers)) for e in t.events],
         [(n.state_key, n.actor, n.notes, n.scores) for n in t])
        for t in trees
    ]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(st.lists(odd, min_size=7, max_size=7))
@example(["a\ud800", "\udcff", "\ud83d", "\x00", "\x1b]0;x\x07\ud800", "\udc00\ud800", "\ufffe"])
@example(["\u202e", "\U0010ffff", MARK, MARK + "x", "\r\n", "\u2028", "e\u0301"])
def test_what_is_saved_is_what_was_there(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("odd")
    made = forest(texts)
    save(made, folder / "forest")
    assert told(load(folder / "forest")) == told(made)
    archive = open_forest(folder / "forest")
    (tree,) = made
    assert told([archive.tree(tree.id)]) == told(made)
    assert archive.scores(texts[6]).tolist()[1] == 1.0
    archive.trees[0][1].encode()  # what stands in addresses can
    jsonl.write(made, folder / "nodes.jsonl")
    (read,) = jsonl.read(folder / "nodes.jsonl")
    assert (read.id, read.task, read.item, read.notes) == (tree.id, tree.task, tree.item, tree.notes)
    assert [n.notes for n in read] == [n.notes for n in tree]
    np.testing.assert_array_equal(read[1].actions, tree[1].actions)


@pytest.mark.parametrize("states", ["keep", "drop"])
def test_states_of_odd_text_are_kept_or_dropped(tmp_path, states):
    made = forest(["t"] * 7)
    (tree,) = made
    tree[1].state = {"text": "half \ud800"}
    save(made, tmp_path / "f", states=states)
    (back,) = load(tmp_path / "f")
    assert back[1].state == (tree[1].state if states == "keep" else None)
