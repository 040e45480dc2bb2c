"""Whatever is done to a tree, in any order: every path, score and state handle that existed stays what it was.

The model knows nothing of trees: it keeps, for every node ever seen, what is known of all actions from the
root to its end.
"""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rolltree.tree import Tree, TreeError
from rolltree.tree.forest import account
from rolltree.tree.node import DTYPE, FILL, PER_ACTION, Node
from rolltree.tree.store import jsonl, parquet
from tests.tree.forest_strategies import actions, arrays, assert_same_tree

CONTEXTUAL = ("logp", "sampling_logprob", "entropy", "top")
CREDIT = ("gain", "loss", "weight")
Record = dict[str, Any]


def records(node: Node) -> list[Record]:
    """What is known of each action of a node, as bytes, so that equality is exact."""
    out: list[Record] = []
    for i in range(len(node)):
        record: Record = {"action": node.actions[i].tobytes(), "role": node.role, "actor": node.actor}
        for name in PER_ACTION:
            array = getattr(node, name)
            record[name] = None if array is None else array[i].tobytes()
        record["top"] = None if node.top is None else (node.top.ids[i].tobytes(), node.top.logp[i].tobytes())
        out.append(record)
    return out


def path_records(tree: Tree, id: int) -> list[Record]:
    return [r for n in tree.path(id) for r in records(n)]


def entry(name: str, value: Any) -> bytes:
    return np.array(value, DTYPE[name]).tobytes()


def without(record: Record, names: tuple[str, ...]) -> Record:
    return record | dict.fromkeys(names)


class TreeMachine(RuleBasedStateMachine):
    kind = "ids"

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)
        self.tree = Tree("t", actions(self.rng, self.kind, 3), task="machine")
        self.paths: dict[int, list[Record]] = {}
        self.labels: dict[int, tuple[dict[str, float], Any]] = {}
        self.status: dict[int, str] = {}
        self.watch(self.tree.root)

    def watch(self, node: Node) -> None:
        self.paths[node.id] = path_records(self.tree, node.id)
        self.labels[node.id] = (dict(node.scores), node.state)
        self.status[node.id] = node.status

    def node(self, data: st.DataObject, **wanted: Any) -> Node | None:
        fits = [n for n in self.tree if all(getattr(n, k) in v for k, v in wanted.items())]
        return data.draw(st.sampled_from(fits)) if fits else None

    @rule(
        data=st.data(),
        count=st.integers(0, 4),
        seed=st.integers(0, 99),
        role=st.sampled_from(["policy", "env", "hint"]),
    )
    def extend(self, data: st.DataObject, count: int, seed: int, role: Any) -> None:
        parent = self.node(data, status=("open", "paused", "done"))
        if parent is None:
            return
        rng = np.random.default_rng(seed)
        given = arrays(rng, count)
        acts = actions(rng, self.kind, count)
        node = self.tree.extend(parent, acts, role=role, scores={"reward": float(seed)}, state=object(), **given)
        assert node.actions is acts
        assert path_records(self.tree, node.id)[: -count or None] == self.paths[parent.id]
        self.watch(node)

    @rule(data=st.data(), count=st.integers(0, 3), seed=st.integers(0, 99))
    def append(self, data: st.DataObject, count: int, seed: int) -> None:
        leaf = self.node(data, status=("open", "paused", "done"), is_leaf=(True,))
        if leaf is None:
            return
        rng = np.random.default_rng(seed)
        given, acts = arrays(rng, count), actions(rng, self.kind, count)
        given.pop("top", None)
        own = len(leaf)
        had = {name for name in PER_ACTION if getattr(leaf, name) is not None}
        self.tree.append(leaf, acts, **given)
        if count == 0:
            return
        old = self.paths[leaf.id]
        for i in range(len(old) - own, len(old)):
            old[i] = old[i] | {n: entry(n, FILL[n]) for n in given if n not in had} | {"top": None}
        for i in range(count):
            record: Record = {"action": acts[i].tobytes(), "role": leaf.role, "actor": leaf.actor, "top": None}
            for name in PER_ACTION:
                new = given[name][i] if name in given else FILL[name]
                record[name] = entry(name, new) if name in given or name in had else None
            old.append(record)

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        tail = self.node(data)
        assert tail is not None
        k = data.draw(st.integers(0, len(tail)))
        if k == 0 and len(tail) and tail.parent is None:
            with pytest.raises(TreeError, match="nothing stands before the prompt"):
                self.tree.cut(tail, k)
            return
        leaves, size, own = [n.id for n in self.tree.leaves()], len(self.tree), len(tail)
        head = self.tree.cut(tail, k)
        assert [n.id for n in self.tree.leaves()] == leaves
        assert path_records(self.tree, head.id) == self.paths[tail.id][: len(self.paths[tail.id]) - own + k]
        if 0 < k < own:
            assert len(self.tree) == size + 1
            assert self.tree.cut(tail, 0) is head
            assert self.tree.cut(head, k) is head
            self.watch(head)
        assert len(self.tree) == size + (0 < k < own)

    @rule(data=st.data(), foreign=st.booleans())
    def graft(self, data: st.DataObject, foreign: bool) -> None:
        parent, source = self.node(data, status=("open", "paused", "done")), self.node(data)
        if parent is None or source is None or len(self.tree) > 60:
            return
        store = self.tree
        if foreign:
            with TemporaryDirectory() as folder:
                store = parquet.load(parquet.save([self.tree], Path(folder) / "f", states="drop"))["t"]
        originals = list(store.walk(source.id))
        start = len(self.paths[source.id]) - len(source)
        expected = [self.paths[n.id][start:] for n in originals]
        top = self.tree.graft(parent, store, source.id)
        copies = list(self.tree.walk(top))
        assert len(copies) == len(originals)
        for copy, original, path in zip(copies, originals, expected, strict=True):
            found = path_records(self.tree, copy.id)
            assert found == self.paths[parent.id] + [without(r, CREDIT) for r in path]
            assert copy.scores == original.scores
            assert copy.state is original.state
            self.watch(copy)

    @rule(data=st.data())
    def splice(self, data: st.DataObject) -> None:
        leaf = self.node(data, is_leaf=(True,))
        assert leaf is not None
        path = self.tree.path(leaf)
        live = [i for i in range(1, len(path)) if path[i - 1].status not in ("pruned", "failed")]
        if not live:
            return
        i = data.draw(st.sampled_from(live))
        j = data.draw(st.integers(i + 1, len(path)))
        ends = [0, *np.cumsum([len(n) for n in path]).tolist()]
        whole = self.paths[leaf.id]
        new = self.tree.splice(leaf, path[i], path[j] if j < len(path) else None, why="failed call")
        kept = [without(r, CONTEXTUAL + CREDIT) for r in whole[ends[j] :]]
        assert path_records(self.tree, new.id) == whole[: ends[i]] + kept
        for node in self.tree.path(new):
            if node.id not in self.paths:
                self.watch(node)

    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        node = self.node(data)
        if node is None or node.parent is None:
            return
        below = {n.id for n in self.tree.walk(node)}
        hit = self.tree.prune(node, "unlucky")
        assert {n.id for n in hit} == {i for i in below if self.status[i] != "pruned"}
        self.status |= dict.fromkeys(below, "pruned")

    @rule(data=st.data())
    def pause_or_resume(self, data: st.DataObject) -> None:
        node = self.node(data, is_leaf=(True,))
        assert node is not None
        if node.status == "paused":
            self.tree.resume(node)
            self.status[node.id] = "open"
        elif node.status == "open":
            self.tree.pause(node, "over budget")
            self.status[node.id] = "paused"
        else:
            with pytest.raises(TreeError, match="not paused"):
                self.tree.resume(node)

    @precondition(lambda self: len(self.tree) > 1)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        leaf = self.node(data, status=("open",), is_leaf=(True,))
        if leaf is not None and leaf.parent is not None:
            self.tree.close(leaf, "done", "eos")
            self.status[leaf.id] = "done"

    @invariant()
    def nothing_moved(self) -> None:
        assert set(self.paths) == set(self.tree.nodes)
        for id, path in self.paths.items():
            node = self.tree[id]
            assert path_records(self.tree, id) == path
            assert node.scores == self.labels[id][0]
            assert node.state is self.labels[id][1]
            assert node.status == self.status[id]

    @invariant()
    def links_agree(self) -> None:
        order = [n.id for n in self.tree]
        assert sorted(order) == sorted(self.tree.nodes)
        place = {id: i for i, id in enumerate(order)}
        for node in self.tree:
            assert all(self.tree[c].parent == node.id for c in node.children)
            assert all(place[a] < place[b] for a, b in pairwise([node.id, *node.children]))

    @invariant()
    def every_leaf_is_accounted_for(self) -> None:
        found = account([self.tree])
        assert found.unexplained == ()
        assert found.leaves == len(self.tree.leaves())

    def teardown(self) -> None:
        for node in self.tree:
            node.state = None
        read = jsonl.parse(jsonl.lines([self.tree]))["t"]
        with TemporaryDirectory() as folder:
            stored = parquet.load(parquet.save([self.tree], Path(folder) / "f"))["t"]
        assert_same_tree(self.tree, stored)
        assert_same_tree(self.tree, read, events=False)


class LatentMachine(TreeMachine):
    kind = "latents"


TestTokenTree = TreeMachine.TestCase
TestLatentTree = LatentMachine.TestCase
TestTokenTree.settings = TestLatentTree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
