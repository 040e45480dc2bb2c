"""Forests that version 0.1 wrote open under today's names, whole, column by column, as SQL and as JSON lines."""

from pathlib import Path

import numpy as np
import pytest

from rolltree.tree.forest import Forest
from rolltree.tree.store import jsonl
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import load, save

STORED = Path(__file__).parent / "data"


def check(tree):
    policy, env = (tree[i] for i in tree.root.children)
    assert policy.trainable
    assert not env.trainable
    assert np.array_equal(policy.sampling_logprob, np.array([-0.25, np.nan], np.float32), equal_nan=True)
    assert (policy.usage, env.usage) == ("trained", "dropped: filter")


def test_a_forest_of_0_1_loads_whole():
    check(load(STORED / "forest-0.1")["t0"])


def test_json_lines_of_0_1_load():
    check(jsonl.read(STORED / "forest-0.1.jsonl")["t0"])


def test_a_forest_of_0_1_is_read_column_by_column():
    archive = open_forest(STORED / "forest-0.1")
    check(archive.tree("t0"))
    assert archive.numbers("trainable").tolist() == [False, True, False]
    codes, words = archive.words("usage")
    assert [words[c] for c in codes] == ["", "trained", "dropped: filter"]
    assert archive.ragged("sampling_logprob")[0][0] == pytest.approx(-0.25)


def test_sql_over_a_forest_of_0_1_knows_the_new_names_only():
    pytest.importorskip("duckdb")
    found = open_forest(STORED / "forest-0.1").sql("select usage from nodes where trainable")
    assert found.to_pylist() == [{"usage": "trained"}]


def test_what_0_1_said_of_a_leaf_without_credit_is_read_as_it_is_said_today(tmp_path):
    forest = Forest()
    tree = forest.plant("t0", [1, 2])
    tree.root.usage, tree.root.status = "dropped: nothing to teach", "done"
    save(forest, tmp_path / "forest")
    jsonl.write(forest, tmp_path / "nodes.jsonl")
    said = "dropped: no credit"
    assert load(tmp_path / "forest")["t0"].root.usage == said
    assert jsonl.read(tmp_path / "nodes.jsonl")["t0"].root.usage == said
    assert open_forest(tmp_path / "forest").words("usage")[1] == [said]
