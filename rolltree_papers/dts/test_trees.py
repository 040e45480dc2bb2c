"""What `dts` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.task.protocol import Item, Verdict
from rolltree.testing.tiny import SpellTask
from rolltree_papers.dts import CHOSEN, TreeSampling, log_mean_exp
from tests.latents.tiny import grown


def test_log_mean_exp_lies_between_mean_and_maximum_and_forgets_no_count() -> None:
    values = [0.1, 0.5, 0.9]
    assert np.mean(values) < log_mean_exp(values, 5.0) < 0.9
    assert log_mean_exp([0.3] * 7, 9.0) == pytest.approx(0.3)
    assert log_mean_exp(values, 1e-6) == pytest.approx(0.5, abs=1e-4)


class _Rare(SpellTask):
    """Right is what begins with the rare letter, and the more so the more of them follow."""

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        return Verdict(float(text.startswith("b")) * (0.5 + 0.25 * text[1:3].count("b")), answer=text)


@pytest.mark.parametrize("select", ["uct", "boltzmann"])
def test_a_search_finds_rare_outcomes_more_often_than_chance(select: str) -> None:
    """A sticky chain of text: the first letter decides, and it is rarely the right one."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        return [0.9, 0.1, 0.0] if len(prefix) <= 1 else [0.5, 0.5, 0.0]

    engine = TabularEngine(row, Letters("ab$", 2), max_context=16)
    search = TreeSampling(60, (1, 2), alpha=0.5, select=select, explore=0.2)  # pyright: ignore[reportArgumentType]
    item = Item("rare", "a", 1)
    forest = asyncio.run(grow(search, engine, _Rare(), [item], max_tokens=3))
    tree = next(iter(forest))
    scores = [leaf.scores["reward"] for leaf in tree.leaves()]
    assert np.mean(np.array(scores) > 0) > 0.2
    assert tree[tree.notes[CHOSEN]].scores["reward"] > 0
    root = tree.root.scores["value"]
    values = [n.scores["value"] for n in tree.children(tree.root) if "value" in n.scores]
    assert root == pytest.approx(log_mean_exp(values, 10.0))


def test_dts_widens_by_visits_and_stops_at_the_budget() -> None:
    forest = grown(TreeSampling(12, (1, 3), alpha=0.5))
    tree = next(iter(forest))
    assert 2 <= len(tree.root.children) <= math.ceil(2 * 13**0.5)
    assert any(len(n.children) > 1 for n in tree if n.parent is not None)
