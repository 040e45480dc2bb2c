"""Methods over whole answers and graded steps on the tiny exact policy: who pays, what refers to what, what is kept."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from rolltree.analysis.step_rows import RowRules, sft_rows
from rolltree.control.ledger import Budget
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.generate.runner import grow
from rolltree.generate.search.attempts import OperatorTexts
from rolltree.generate.strategy import TreeStrategy
from rolltree.testing.tiny import CODEC, SpellTask, tiny_engine
from rolltree.tree import Forest
from rolltree.tree.references import references
from rolltree.tree.steps import STEP_VALUE, THOUGHT
from rolltree_papers.codetree import CodeTreeAnswers, CodeTreeRules, CodeTreeTexts
from rolltree_papers.evogit import EvoGitRules, PopulationOfAnswers
from rolltree_papers.webstar import GradedSteps


def grown(strategy: TreeStrategy, budget: Budget | None = None, n: int = 4) -> Forest:
    task = SpellTask()
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), n), seed=2, budget=budget))


def main_trees(forest: Forest) -> list[Any]:
    return [tree for tree in forest if "/" not in tree.id]


def test_codetree_asks_a_thinker_and_charges_it() -> None:
    texts = CodeTreeTexts("{prompt}", "{says}", "{answer}{prompt}", "{prompt}")
    budget = Budget()
    forest = grown(CodeTreeAnswers(6, CodeTreeRules(2, 3), texts), budget)
    assert budget.spent.by_role["thinker"] > 0
    assert budget.spent.decoded == sum(len(n) for tree in forest for n in tree if n.role == "policy" and not n.forced)
    for tree in main_trees(forest):
        written = [n for n in tree if n.notes.get("operator") in ("solve", "debug")]
        assert 0 < len(written) <= 6
        assert tree.notes.get("answer") is not None
        chosen = max((n for n in tree if "value" in n.scores), key=lambda n: n.scores["value"])
        assert tree.notes["answer"] == chosen.notes["answer"], "the best seen, not the last"


@pytest.mark.parametrize("accuracy", [1.0, 0.0])
def test_a_population_keeps_what_the_judge_prefers_and_refers_to_what_was_merged(accuracy: float) -> None:
    texts = OperatorTexts({"mutate": "{prompt}", "merge": "{prompt}"})
    judge = Votes(MeasuredJudge(accuracy=accuracy), 1, "swapped")
    forest, kept = grown(PopulationOfAnswers(4, EvoGitRules(6, 3), texts, judge), n=6), 0
    for tree in main_trees(forest):
        by = {name: [n for n in tree if n.notes.get("operator") == name] for name in ("draft", "mutate", "merge")}
        assert len(by["draft"]) == 6
        assert all(len(references(tree, n)) == 1 for n in by["mutate"]), "what it is an edit of"
        assert all(len(references(tree, n)) == 2 for n in by["merge"])
        assert all(len(tree.path(n)) <= 3 for n in tree), "contexts do not grow"
        assert tree.notes["answer"] is not None
        for node in (n for n in (*by["mutate"], *by["merge"]) if n.notes.get("better")):
            kept += 1
            olds = [old.scores["reward"] for old in references(tree, node)]
            right = node.scores["reward"] >= max(olds) if accuracy else node.scores["reward"] <= min(olds)
            assert right, "who is preferred takes the place"
    assert kept


def test_steps_are_graded_one_by_one_and_kept_ones_have_thoughts_that_saw_no_later_state() -> None:
    forest = grown(GradedSteps(6, MeasuredStep(), "e", 0.5, "{before}{step}"))
    kept, rows = 0, 0
    for tree in main_trees(forest):
        for node in tree:
            if THOUGHT in node.notes:
                kept += 1
                assert node.scores[STEP_VALUE] > 0.5
        thoughts = [t for t in forest if t.id.startswith(f"{tree.id}/hindsight")]
        asked = {CODEC.decode(t.root.actions) for t in thoughts}
        ends = {CODEC.decode(tree.prefix(n)[len(tree.root) :]) for n in tree if THOUGHT in n.notes}
        assert asked == ends, "what it read ends with the step"
        for row in sft_rows(tree, CODEC.decode, RowRules(threshold=0.5)):
            rows += 1
            assert row["prompt"].startswith(CODEC.decode(tree.root.actions))
    assert kept
    assert rows == kept


class MeasuredStep:
    """Grades a step by whether its last letter stands early in the alphabet."""

    name = "early"
    want = frozenset[str]()

    def calls(self, size: int) -> int:
        return 0

    async def __call__(self, hand: Any, questions: Any, rng: Any) -> Any:
        return [[float(e.text.rstrip("!")[-1:] < "m") for e in q] for q in questions]
