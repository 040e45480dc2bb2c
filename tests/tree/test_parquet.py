"""Round trips are exact; a folder is whole or absent; damage is one sentence that names the file."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from rolltree.tree import Forest, Tree
from rolltree.tree.store import atomic
from rolltree.tree.store.parquet import load, parts, save, save_step
from rolltree.tree.store.values import StoreError, storable
from tests.tree.forest_strategies import assert_same_tree, forests

FOLDER = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def small(count: int = 3) -> Forest:
    forest = Forest()
    for i in range(count):
        tree = forest.plant(f"t{i}", [1, 2, 3], task="sum", item=str(i))
        node = tree.extend(tree.root, [4, 5], logp=[-0.5, np.nan], scores={"reward": float(i)}, status="done")
        tree.cut(node, 1)
    return forest


@FOLDER
@given(forest=forests())
def test_round_trip_is_exact(tmp_path: Path, forest: Forest):
    save(forest, tmp_path / "f", overwrite=True)
    back = load(tmp_path / "f")
    assert [t.id for t in back] == [t.id for t in forest]
    for tree in forest:
        assert_same_tree(tree, back[tree.id])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64", "float16", "float64"])
@pytest.mark.parametrize("shape", [(0,), (4,), (0, 3), (2, 0), (2, 3, 2)])
def test_actions_of_any_type_and_trailing_shape(tmp_path: Path, dtype: str, shape: tuple[int, ...]):
    tree = Tree("t", np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype))
    tree.extend(tree.root, np.arange(5, dtype=np.int32))
    save([tree], tmp_path / "f")
    assert_same_tree(tree, load(tmp_path / "f")["t"])


def test_row_groups_smaller_than_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rolltree.tree.store.parquet.ROWS", 3)
    forest = small(5)
    save(forest, tmp_path / "f")
    for tree, back in zip(forest, load(tmp_path / "f"), strict=True):
        assert_same_tree(tree, back)


def test_loaded_arrays_can_be_changed(tmp_path: Path):
    save(small(2), tmp_path / "f")
    forest = load(tmp_path / "f")
    before = forest["t1"][1].logp.copy()
    forest["t0"][1].logp[:] = 7.0
    np.testing.assert_array_equal(forest["t1"][1].logp, before)


def test_other_programs_read_the_files(tmp_path: Path):
    folder = save(small(), tmp_path / "f")
    query = "select tree, scores['reward'] from read_parquet(?) where scores['reward'] is not null order by tree"
    assert duckdb.execute(query, [str(folder / "nodes.parquet")]).fetchall() == [("t0", 0.0), ("t1", 1.0), ("t2", 2.0)]
    frame = pd.read_parquet(folder / "nodes.parquet")
    assert [list(a) for a in frame["actions"]] == [[1, 2, 3], [4], [5]] * 3
    assert frame["parent"].isna().sum() == 3


def test_a_run_is_a_part_per_step_with_the_step_as_a_column(tmp_path: Path):
    for step in (3, 11):
        save_step(small(), tmp_path / "run", step)
    assert [s for s, _ in parts(tmp_path / "run")] == [3, 11]
    query = f"select step, count(*) from read_parquet('{tmp_path}/run/*/nodes.parquet') group by step order by step"
    assert duckdb.sql(query).fetchall() == [(3, 9), (11, 9)]


def test_nothing_is_overwritten_unless_told(tmp_path: Path):
    save(small(1), tmp_path / "f")
    with pytest.raises(StoreError, match="exists; choose another folder"):
        save(small(2), tmp_path / "f")
    assert len(load(tmp_path / "f")) == 1
    save(small(2), tmp_path / "f", overwrite=True)
    assert len(load(tmp_path / "f")) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_save_that_fails_leaves_the_old_forest(tmp_path: Path):
    save(small(1), tmp_path / "f")
    bad = small(2)
    bad["t1"][1].state = object()
    with pytest.raises(StoreError, match=r"state of node 1 of tree 't1'.*object.*storable"):
        save(bad, tmp_path / "f", overwrite=True)
    assert len(load(tmp_path / "f")) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    save(bad, tmp_path / "f", overwrite=True, states="drop")
    assert load(tmp_path / "f")["t1"][1].state is None


KILLED_BETWEEN_RENAMES = """
import os, signal, sys
from pathlib import Path
from rolltree.tree import Tree
from rolltree.tree.store import atomic
from rolltree.tree.store.parquet import save
atomic._exchanged = lambda one, other: False
real = Path.rename
def rename(self, target):
    if self.name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, target)
Path.rename = rename
save([Tree("new", [1])], sys.argv[1], overwrite=True)
"""


@pytest.mark.parametrize("at", ["f", ".f.partial"])
def test_a_killed_writer_never_destroys_the_only_copy(tmp_path: Path, at: str):
    save(small(1), tmp_path / "f")
    died = subprocess.run([sys.executable, "-c", KILLED_BETWEEN_RENAMES, str(tmp_path / "f"), at], check=False)
    assert died.returncode == -signal.SIGKILL
    if at == ".f.partial":
        with pytest.raises(StoreError, match=r"was being overwritten when the writer died; rename .*\.f\.replaced"):
            load(tmp_path / "f")
    with pytest.raises(StoreError, match="exists"):
        save(small(2), tmp_path / "f")
    assert [t.id for t in load(tmp_path / "f")] == ["t0"]


def test_where_names_can_be_exchanged_the_folder_is_never_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = atomic._exchanged, list[tuple[list[str], list[str]]]()

    def exchanged(one: Path, other: Path) -> bool:
        before = [t.id for t in load(tmp_path / "f")]
        if not real(one, other):
            pytest.skip("this file system exchanges no names")
        seen.append((before, [t.id for t in load(tmp_path / "f")]))
        return True

    monkeypatch.setattr(atomic, "_exchanged", exchanged)
    save(small(1), tmp_path / "f")
    save([Tree("new", [1])], tmp_path / "f", overwrite=True)
    assert seen == [(["t0"], ["new"])]
    assert [one.name for one in tmp_path.iterdir()] == ["f"], "nothing of the old one is left"


@pytest.mark.parametrize("name", ["nodes", "events", "trees"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "missing", "foreign", "older", "newer"])
def test_damage_is_one_sentence_naming_the_file(tmp_path: Path, name: str, damage: str):
    path = save(small(200), tmp_path / "f") / f"{name}.parquet"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        for i in range(40, 60):
            data[i] ^= 0xFF
        path.write_bytes(data)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not a parquet file")
    elif damage == "missing":
        path.unlink()
    elif damage == "foreign":
        pd.DataFrame({"tree": ["t0"]}).to_parquet(path)
    else:
        table = pq.read_table(path)
        version = 1 if damage == "older" else 99
        pq.write_table(table.replace_schema_metadata({"rolltree": f'{{"version":{version}}}'}), path)
    with pytest.raises(StoreError) as caught:
        load(tmp_path / "f")
    said = str(caught.value)
    assert path.name in said
    assert "\n" not in said
    if damage in ("older", "newer"):
        assert "schema version" in said


def test_files_of_two_saves_do_not_mix(tmp_path: Path):
    save(small(2), tmp_path / "a")
    save(small(3), tmp_path / "b")
    shutil.copy(tmp_path / "a" / "nodes.parquet", tmp_path / "b" / "nodes.parquet")
    with pytest.raises(StoreError, match=r"mixes files of different saves: trees\.parquet counts 9 nodes"):
        load(tmp_path / "b")


def test_actions_that_cannot_be_stored_are_refused(tmp_path: Path):
    with pytest.raises(StoreError, match=r"node 0 of tree 't' has actions of type <U1"):
        save([Tree("t", np.array(["a"]))], tmp_path / "f")
    assert not os.listdir(tmp_path)


@storable
@dataclass(frozen=True, slots=True)
class Door:
    at: tuple[int, int]
    open: bool = False


def test_states_of_registered_classes_come_back_and_others_are_never_made(tmp_path: Path):
    tree = Tree("t", [1])
    tree.extend(0, [2], state={"doors": frozenset({Door((1, 2)), Door((3, 4), True)}), "bytes": b"\0\xff"})
    save([tree], tmp_path / "f")
    assert load(tmp_path / "f")["t"][1].state == tree[1].state
    program = f"from rolltree.tree.store.parquet import load; load({str(tmp_path / 'f')!r})"
    stranger = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Door, which is not registered: import the module that defines it first" in stranger.stderr
