"""One shape for trees in memory and in files: against plain walks over the nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.shape import copies, sharing, trees
from rolltree.tree import Tree
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import save
from rolltree.tree.table import table
from rolltree.view.outline import outline


@st.composite
def forests(draw: st.DrawFn) -> list[Tree]:
    out: list[Tree] = []
    for i in range(draw(st.integers(1, 4))):
        tree = Tree(f"t{i}", [1, 2], item=f"i{i}")
        for _ in range(draw(st.integers(0, 9))):
            above = draw(st.sampled_from(sorted(tree.nodes)))
            role = draw(st.sampled_from(["policy", "policy", "env"]))
            node = tree.extend(above, list(range(draw(st.integers(0, 3)))), role=role, status="done")
            if draw(st.booleans()):
                node.scores["reward"] = float(draw(st.integers(0, 1)))
                node.notes["answer"] = draw(st.sampled_from(["4", "5"]))
        out.append(tree)
    return out


@given(forests())
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_a_walk(made: list[Tree]) -> None:
    view = table(made)
    walked = [(t, n) for t in made for n in t.walk()]
    row = {(t.id, n.id): i for i, (t, n) in enumerate(walked)}
    assert view.parent.tolist() == [-1 if n.parent is None else row[t.id, n.parent] for t, n in walked]
    assert view.depth.tolist() == [t.depth(n) for t, n in walked]
    assert view.end.tolist() == [row[t.id, n.id] + len(list(t.walk(n))) for t, n in walked]
    assert view.is_leaf.tolist() == [n.is_leaf for _, n in walked]
    assert view.leaf_count.tolist() == [sum(m.is_leaf for m in t.walk(n)) for t, n in walked]
    assert view.child_count.tolist() == [len(n.children) for _, n in walked]
    for i, (t, n) in enumerate(walked):
        assert view.path(i) == [row[t.id, m.id] for m in t.path(n)]
        assert view.children(i) == [row[t.id, c] for c in n.children]
    values = np.arange(len(view.leaf), dtype=np.int64)
    own = [[values[j] for j, k in enumerate(view.leaf) if i <= k < view.end[i]] for i in range(len(view))]
    assert view.below(values).tolist() == [sum(v) for v in own]


@given(made=forests())
@settings(max_examples=20, deadline=None)
def test_memory_archive_and_one_tree_of_it_have_the_same_shape(made: list[Tree], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("forest") / "f"
    save(made, folder)
    view, archive = table(made), open_forest(folder)
    for name in ("parent", "depth", "end", "is_leaf", "leaf", "leaf_lo", "leaf_hi", "tree"):
        assert getattr(view, name).tolist() == getattr(archive.shape, name).tolist(), name
    assert view.score_names() == archive.score_names()
    assert [view.events().kind[i] for i in range(len(view.events()))] == list(archive.events().kind)
    for tree in made:
        one, alone = outline(archive, tree.id), table([tree])
        assert one.depth.tolist() == alone.depth.tolist()
        assert one.end.tolist() == alone.end.tolist()


@given(forests())
@settings(max_examples=60, deadline=None)
def test_sharing_answers_and_depth_against_plain_counts(made: list[Tree]) -> None:
    r = Rollouts(table(made))
    own = on_paths = 0
    unique: list[float] = []
    depths: list[int] = []
    for tree in made:
        leaves = [n for n in tree.leaves() if n.parent is not None]
        own += sum(len(n) for n in tree if n.role == "policy")
        on_paths += sum(len(n) for leaf in leaves for n in tree.path(leaf) if n.role == "policy")
        depths += [tree.depth(n) for n in leaves]
        judged = [n for n in leaves if n.status == "done" and "reward" in n.scores]
        if judged:
            unique.append(len({n.notes.get("answer") for n in judged}) / len(judged))
    assert sharing(r).get("rollout/sharing") == (pytest.approx(on_paths / own) if own else None)
    assert trees(r).get("rollout/depth") == (pytest.approx(np.mean(depths)) if depths else None)
    assert copies(r).get("rollout/unique") == (pytest.approx(np.mean(unique)) if unique else None)


def test_a_sum_in_one_tree_does_not_reach_another(tmp_path: Path) -> None:
    one, two = Tree("one", [1]), Tree("two", [1])
    for tree, reward in ((one, np.nan), (two, 1.0)):
        tree.extend(0, [2], status="done", scores={"reward": reward})
    view = table([one, two])
    assert np.isnan(view.below(view.reward)[0])
    assert view.below(view.reward)[2] == 1.0
