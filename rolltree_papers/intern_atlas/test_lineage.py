"""Chains that go forward in time: what is given up, what is kept, and the planted chain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.search.proposals import ProposalRules
from rolltree.recipe.recipe import RecipeError
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Reply, Split, Verdict
from rolltree.tree import Forest
from rolltree_papers.intern_atlas import EARLIER, UNFOLLOWED, OrderedActions
from rolltree_papers.intern_atlas.study import recall

LETTERS = Letters("abcde?.0123456789")


@dataclass(frozen=True, slots=True)
class Years:
    """From year 5, a and b go back one or none, c, d and e forward one to three; over at 9."""

    name: str = "years"
    level: int = 0
    stop: tuple[str, ...] = (".",)
    max_tokens: int = 20
    max_turns: int = 8

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for number in range(100):
            yield Item(f"{split}-{seed}-{number}", "?", "9")

    def start(self, item: Item) -> tuple[Any, str | None]:
        return 5, "5"

    async def step(self, item: Item, state: int, text: str) -> Reply:
        year = max(0, min(9, state + "abcde".index(text[0]) - 1)) if text[:1] in "abcde" else state
        return Reply(str(year), year, year == 9, state_key=str(year))

    async def verify(self, item: Item, state: int, text: str) -> Verdict:
        return Verdict(float(state == 9), answer=str(state))


def chooser() -> TabularEngine:
    def row(prefix: tuple[int, ...]) -> list[float]:
        out = [0.0] * len(LETTERS.alphabet)
        if prefix[-1] < 5:
            out[6] = 1.0
        else:
            out[:5] = [0.3, 0.1, 0.3, 0.2, 0.1]
        return out

    return TabularEngine(row, LETTERS)


def grown(**knobs: Any) -> Forest:
    task = Years()
    strategy = OrderedActions(8, proposals=ProposalRules(3, tries=0), **knobs)
    return asyncio.run(grow(strategy, chooser(), task, islice(task.items("test"), 12), seed=1))


def years(tree: Any, leaf: Any) -> list[int]:
    return [int(LETTERS.decode(n.actions)) for n in tree.path(leaf) if n.role == "env"]


def test_with_an_order_no_path_goes_back_and_without_one_some_do() -> None:
    back = {}
    for time in ("", r"\d"):
        rows = [years(tree, leaf) for tree in grown(time=time) for leaf in tree.leaves() if leaf.status == "done"]
        back[time] = sum(b <= a for row in rows for a, b in pairwise(row))
        assert rows
    assert back[""] > 0
    assert back[r"\d"] == 0


def test_steps_back_in_time_are_pruned_and_counted() -> None:
    total = 0
    for tree in grown(time=r"\d"):
        told = next(e for e in tree.events if e.why == "forward in time").numbers
        assert told["earlier"] == sum(e.why == EARLIER for e in tree.events)
        total += told["earlier"]
        assert not any(n.status == "open" and n.is_leaf for n in tree)
    assert total


def test_weak_evidence_is_not_followed() -> None:
    for tree in grown(least=0.45):
        followed = [n for n in tree if n.role == "policy" and n.status != "pruned"]
        assert all(n.scores["node_value"] >= 0.45 for n in followed if "node_value" in n.scores)
        assert any(e.why == UNFOLLOWED for e in tree.events)


def test_times_help_where_they_are_right_and_harm_where_they_are_not() -> None:
    (with_time, barred), (without, none) = (recall(arm, 0, 12) for arm in ("best first, forward", "best first"))
    assert with_time > without
    assert barred > none == 0
    assert recall("best first, forward", 0, 12, wrong=1.0)[0] < without


def test_a_broken_expression_is_refused() -> None:
    with pytest.raises(RecipeError, match="no regular expression"):
        load_recipe("intern_atlas", time="(").build()
