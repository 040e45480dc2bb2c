"""What `evogit` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.generate.search.attempts import OperatorTexts
from rolltree.tree.references import references
from rolltree_papers.evogit import EvoGitRules, PopulationOfAnswers
from tests.generate.search.test_answer_methods import grown, main_trees


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
