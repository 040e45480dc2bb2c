"""Labels by three topologies: what is asked where, and what an error at the top does."""

from __future__ import annotations

import asyncio

import numpy as np

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.task.protocol import Item
from rolltree.tree import Tree
from rolltree_papers.label_tree import LABELS, LabelChoice, Topology, children
from rolltree_papers.label_tree.study import Labelled, measured

LETTERS = Letters("abcd/?")


def test_children_are_the_next_names_once_each() -> None:
    given = ("a/b", "a/c/d", "a/c/b", "d")
    assert children(given, "", "/") == ["a", "d"]
    assert children(given, "a", "/") == ["b", "c"]
    assert children(given, "a/c", "/") == ["d", "b"]
    assert children(given, "d", "/") == children(given, "a/b", "/") == []


def policy(prefix: tuple[int, ...]) -> list[float]:
    """Likes a first of all, and d most below anything; alone, c most."""
    text = LETTERS.decode(prefix).partition("?")[2]
    out = {"": [0.4, 0.1, 0.45, 0.05], "a/": [0.1, 0.1, 0.2, 0.6], "c/": [0.1, 0.7, 0.1, 0.1]}.get(text, [0.25] * 4)
    return [*(x * 0.9 for x in out), 0.1, 0.0] if not text.endswith(tuple("abcd")) else [0, 0, 0, 0, 1.0, 0]


def chosen(topology: Topology, given: tuple[str, ...], meta: dict[str, object] | None = None) -> tuple[str, Tree]:
    strategy = LabelChoice(given, topology, ask="{prompt}{path}", mean=False)
    item = Item("one", "?", "a", meta=meta or {})
    forest = asyncio.run(grow(strategy, TabularEngine(policy, LETTERS), Labelled(), [item], seed=0))
    tree = forest["one"]
    return str(tree.notes.get("answer")), tree


def test_a_name_that_is_likely_at_the_top_hides_what_is_likely_as_a_whole() -> None:
    given = ("a/c", "a/d", "c/a", "c/d")
    assert chosen("down", given)[0] == "c/a", "c comes first, and below it nothing is likely"
    assert chosen("path", given)[0] == "a/d"
    assert chosen("leaf", ("a/b", "c/d", "d/c"))[0] == "d/c", "the leaf's own name alone"


def test_an_only_child_is_not_asked_about_and_labels_of_an_item_go_first() -> None:
    _, tree = chosen("down", ("a/b", "c/d"))
    assert [e.numbers["options"] for e in tree.events if e.kind == "select"] == [2]
    assert chosen("down", ("a",), {LABELS: ["b"]})[0] == "b"
    assert "no labels to choose from" in str(chosen("down", ())[1].notes["failed"])


def test_from_the_top_down_errors_multiply() -> None:
    levels = (0.9, 0.8, 0.9)
    right, _ = measured("down", levels, 0, items=300)
    assert abs(right - float(np.prod(levels))) < 3 * np.sqrt(0.648 * 0.352 / 300)


def test_the_whole_path_costs_more_with_every_level() -> None:
    cost = {d: [measured(arm, (0.9,) * d, 0, items=5)[1] for arm in ("path", "down")] for d in (1, 4)}
    assert cost[1][0] == cost[1][1]
    assert cost[4][0] > 2 * cost[4][1]
