"""Planted errors: what is planted is wrong, a judge that knows is perfect, one that follows the place is found out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest

from rolltree.cli import main
from rolltree.compare.judges import PLANTED, JudgeFormats, JudgeTable, judge_table
from rolltree.compare.trace import LabError
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Opinion, Question
from rolltree.task.protocol import Task
from rolltree.task.registry import load_task
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine

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
    assert 0 < first.spent.judge_calls == sum(4 * row.pairs.questions for row in first.rows) + 10 + 4 * 10


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


@dataclass(frozen=True)
class Says(Knows):
    """Grades every answer alone at `grade`; in pairs it prefers right answers, whoever asks."""

    grade: float = 1.0
    blind: bool = False

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        assert hand is not None
        prompt = hand.item.prompt

        def right(text: str) -> float:
            return float(any(t.endswith(text) for t in self.right) if self.blind else prompt + text in self.right)

        return [[self.grade] if len(question) == 1 else [right(e.text) for e in question] for question in questions]


def formats(judge_of: Any, engine: TabularEngine | None = None) -> JudgeFormats:
    task = load_task("arithmetic")
    items = list(islice(task.items("test"), 8))
    right = frozenset(item.prompt + task.act(item, None, Random(item.id), 0.0) for item in items)  # type: ignore[attr-defined]
    flat = TabularEngine(lambda _: [1 / 96] * 96, Letters(CHARACTERS))
    return asyncio.run(judge_table(judge_of(right), engine or flat, task, items)).formats


def test_a_judge_that_says_yes_to_anything_is_told_by_its_bias() -> None:
    assert formats(Says).yes_bias == 0.5
    assert formats(lambda right: Says(right, grade=0.1)).yes_bias == -0.5
    assert formats(Knows).yes_bias == pytest.approx(0.0)


def test_a_judge_that_reads_the_question_falls_where_it_is_exchanged_and_one_that_does_not_stays() -> None:
    assert formats(Knows).exchanged.value == 0.0
    assert formats(lambda right: Says(right, blind=True)).exchanged.value > 0.9


def test_an_open_question_is_answered_by_the_model_itself() -> None:
    task = load_task("arithmetic")
    items = list(islice(task.items("test"), 8))
    texts = [i.prompt + task.act(i, None, Random(i.id), 0.0) for i in items]  # type: ignore[attr-defined]

    def row(prefix: tuple[int, ...]) -> list[float]:
        said, out = "".join(CHARACTERS[i] for i in prefix), [0.0] * 97
        known = next((text for text in texts[:4] if text.startswith(said) and text != said), "")
        out[CHARACTERS.index(known[len(said)]) if known else 96] = 1.0
        return out

    assert formats(Knows, TabularEngine(row, Letters(CHARACTERS, eos_id=96))).open.value == 0.5
    assert formats(Knows).open.value == 0.0
