"""Planted errors: what is planted is wrong, a judge that knows is perfect, one that follows the place is found out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import numpy as np
import pytest

from rolltree.cli import main
from rolltree.contract.tiny import SpellTask, Walk, tiny_engine
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Opinion, Question
from rolltree.lab.judge_table import PLANTED, JudgeTable, judge_table
from rolltree.lab.trace import LabError
from rolltree.task.protocol import Task
from rolltree.task.registry import load_task

CHARACTERS = "".join(chr(i) for i in range(32, 127)) + "\n"


@dataclass(frozen=True)
class Knows:
    """Prefers right answers, or what stands first."""

    right: frozenset[str]
    place: bool = False
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return "knows"

    def calls(self, size: int) -> int:
        return 1

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        assert hand is not None
        prompt = hand.item.prompt
        return [
            [float(i == 0) if self.place else float(prompt + e.text in self.right) for i, e in enumerate(question)]
            for question in questions
        ]


def measured(place: bool) -> JudgeTable:
    task = load_task("arithmetic")
    items = list(islice(task.items("test"), 10))
    right = frozenset(item.prompt + task.act(item, None, Random(item.id), 0.0) for item in items)  # type: ignore[attr-defined]
    engine = TabularEngine(lambda _: [1 / 96] * 96, Letters(CHARACTERS))
    return asyncio.run(judge_table(Knows(right, place), engine, task, items))


def test_a_judge_that_knows_is_right_on_every_kind_and_one_of_the_first_place_never_survives() -> None:
    perfect, first = measured(False), measured(True)
    assert {row.kind for row in perfect.rows} == set(PLANTED)
    for row in perfect.rows:
        assert (row.right.value, row.pairs.abstained, row.graded) == (1.0, 0.0, 1.0)
        assert row.pairs.questions >= 8
    assert perfect.four.value == 1.0
    for row in first.rows:
        assert (row.right.value, row.pairs.abstained, row.pairs.first, row.graded) == (0.0, 1.0, 1.0, 0.5)
    assert 0 < first.spent.judge_calls == sum(4 * row.pairs.questions for row in first.rows) + 10


@pytest.mark.parametrize("task", [Walk(), SpellTask()])
def test_tasks_without_written_answers_or_without_places_for_an_error_are_refused(task: Task) -> None:
    items = list(islice(task.items("test"), 3))
    with pytest.raises(LabError, match=r"answered in one go|no error could be planted"):
        asyncio.run(judge_table(Knows(frozenset()), tiny_engine(), task, items))


def test_the_command_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judges", "--items", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["kind"] for row in told["rows"]} == set(PLANTED)
    assert main(["judges", "--judge", "graded", "--ask", "ok?"]) == 2
    assert "{entry}" in capsys.readouterr().err
    assert main(["judges", "--items", "1"]) == 2
