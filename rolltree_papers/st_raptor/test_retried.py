"""Steps that the environment refuses are taken back and drawn again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice

import pytest

from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.protocol import Item, Reply, Task
from rolltree.testing.tiny import CODEC, SpellTask, Walk, tiny_engine
from rolltree.tree import Forest
from rolltree_papers.st_raptor import REFUSED, Retried

BAD = set(CODEC.alphabet[6:18])


@dataclass(frozen=True, slots=True)
class Strict(Walk):
    """The walk, in which every other word is refused and leads nowhere."""

    async def step(self, item: Item, state: int, text: str) -> Reply:
        """Stay where the word is refused."""
        if text[:1] in BAD:
            return Reply(CODEC.alphabet[state], state, state_key=str(state), failed=True)
        return await Walk.step(self, item, state, text)


def grown(strategy: TreeStrategy, task: Task) -> Forest:
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 8), seed=3))


def refusals(forest: Forest) -> tuple[int, int]:
    """Calls that were refused, on paths that live and on those taken back."""
    failed = [n for tree in forest for n in tree if n.notes.get("failed")]
    return sum(n.status != "pruned" for n in failed), sum(n.status == "pruned" for n in failed)


def test_what_is_refused_is_taken_back_unless_it_was_the_last_try() -> None:
    plain, retried = grown(Independent(4), Strict()), grown(Retried(4, 5), Strict())
    left, back = refusals(plain)
    assert left > 20
    assert back == 0
    few, tried = refusals(retried)
    assert few < left / 5
    assert tried > 20
    for tree in retried:
        assert sum("reward" in leaf.scores for leaf in tree.leaves() if leaf.status == "done") == 4
        for event in tree.events:
            if event.kind == "prune":
                assert event.why == REFUSED
                assert event.numbers["tries"] < 5


@pytest.mark.parametrize(("task", "tries"), [(SpellTask(), 5), (Walk(), 5), (Strict(), 1)])
def test_where_nothing_is_taken_back_rollouts_are_the_independent_ones(task: Task, tries: int) -> None:
    def written(forest: Forest) -> list[list[list[int]]]:
        return [sorted(n.actions.tolist() for n in tree.leaves()) for tree in forest]

    assert written(grown(Retried(4, tries), task)) == written(grown(Independent(4), task))
