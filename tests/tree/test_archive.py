"""An archive sees what a loaded forest holds, through columns, SQL, or one tree at a time."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from rolltree.tree import Forest, Tree
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import save, save_step
from rolltree.tree.store.values import StoreError
from tests.tree.forest_strategies import assert_same_tree, forests


def wide(count: int = 40, prefix: str = "t") -> Forest:
    forest = Forest()
    rng = np.random.default_rng(count)
    for i in range(count):
        tree = forest.plant(f"{prefix}{i}", rng.integers(0, 9, 3))
        for _ in range(int(rng.integers(1, 9))):
            parent = int(rng.choice(list(tree.nodes)))
            n = int(rng.integers(0, 5))
            node = tree.extend(parent, rng.integers(0, 9, n), logp=rng.standard_normal(n), status="done")
            node.scores["reward"] = float(rng.random())
            tree.cut(node, n // 2)
    return forest


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(forest=forests())
def test_shape_agrees_with_a_walk_over_the_trees(tmp_path: Path, forest: Forest):
    archive = open_forest(save(forest, tmp_path / "f", overwrite=True))
    nodes = list(forest.nodes())
    row = {(t.id, n.id): i for i, (t, n) in enumerate(nodes)}
    assert len(archive) == len(nodes)
    assert archive.shape.parent.tolist() == [-1 if n.parent is None else row[t.id, n.parent] for t, n in nodes]
    assert archive.shape.depth.tolist() == [t.depth(n) for t, n in nodes]
    assert archive.shape.end.tolist() == [row[t.id, n.id] + len(list(t.walk(n))) for t, n in nodes]
    assert archive.shape.is_leaf.tolist() == [n.is_leaf for _, n in nodes]
    assert [archive.trees[i][1] for i in archive.shape.tree] == [t.id for t, _ in nodes]
    for tree in forest:
        assert_same_tree(tree, archive.tree(tree.id))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[int, Forest], Path]:
    monkeypatch.setattr("rolltree.tree.store.parquet.ROWS", 37)
    steps = {2: wide(40), 10: wide(30)}
    for step, forest in steps.items():
        save_step(forest, tmp_path / "run", step)
    return steps, tmp_path / "run"


def test_columns_over_all_steps(run: tuple[dict[int, Forest], Path]):
    steps, folder = run
    archive = open_forest(folder)
    nodes = [n for forest in steps.values() for _, n in forest.nodes()]
    values, offsets = archive.ragged("logp")
    for i, node in enumerate(nodes):
        expected = [] if node.logp is None else node.logp
        np.testing.assert_array_equal(values[offsets[i] : offsets[i + 1]], expected)
    np.testing.assert_array_equal(archive.scores("reward"), [n.scores.get("reward", np.nan) for n in nodes])
    assert np.isnan(archive.scores("other")).all()
    codes, words = archive.words("role")
    assert [words[c] for c in codes] == [n.role for n in nodes]
    codes, _ = archive.words("finish")
    assert set(codes) == {-1}
    leaf = int(np.flatnonzero(archive.shape.is_leaf)[5])
    assert archive.numbers("id")[archive.shape.path(leaf)].tolist() == [
        n.id for n in steps[2][archive.trees[archive.shape.tree[leaf]][1]].path(int(archive.numbers("id")[leaf]))
    ]


def test_trees_come_back_across_row_groups_and_steps(run: tuple[dict[int, Forest], Path]):
    steps, folder = run
    archive = open_forest(folder)
    for tree, back in zip([t for f in steps.values() for t in f], archive, strict=True):
        assert_same_tree(tree, back)
    for id in ("t3", "t29", "t4"):
        assert_same_tree(steps[2][id], archive.tree(id, step=2))
    assert_same_tree(steps[2]["t35"], archive.tree("t35"))
    with pytest.raises(StoreError, match="has a tree 't3' at steps 2, 10; name one with step="):
        archive.tree("t3")
    with pytest.raises(StoreError, match="has no tree 't35' at step 10"):
        archive.tree("t35", step=10)


def test_sql_over_nodes_events_and_trees(run: tuple[dict[int, Forest], Path]):
    steps, folder = run
    archive = open_forest(folder)
    rows = archive.sql("select step, count(*) n, sum(length) a from nodes group by step order by step").to_pylist()
    for row in rows:
        lengths = [len(n) for _, n in steps[row["step"]].nodes()]
        assert (row["n"], row["a"]) == (len(lengths), sum(lengths))
    cuts = archive.sql("select count(*) n from events join trees using (step, tree) where kind = 'cut'").to_pylist()
    assert cuts == [{"n": sum(e.kind == "cut" for f in steps.values() for t in f for e in t.events)}]
    with pytest.raises(StoreError, match=r"DuckDB refused the query: .*nodez"):
        archive.sql("select * from nodez")


def test_steps_with_other_kinds_of_actions_stand_in_one_archive(tmp_path: Path):
    save_step([Tree("ids", [1, 2])], tmp_path, 1)
    save_step([Tree("latents", np.ones((1, 3), np.float32))], tmp_path, 2)
    archive = open_forest(tmp_path)
    assert archive.ragged("actions")[1].tolist() == [0, 2, 2]
    assert archive.ragged("actions_float32")[1].tolist() == [0, 0, 3]
    assert archive.sql("select count(actions_float32) n from nodes").to_pylist() == [{"n": 1}]
    with pytest.raises(StoreError, match="has no column 'rewards'; it has tree, id, parent"):
        archive.column("rewards")


def test_what_is_no_forest(tmp_path: Path):
    with pytest.raises(StoreError, match=r"holds no saved forest: nodes\.parquet is missing"):
        open_forest(tmp_path / "nowhere")
