"""What `webstar` promises beside what all of its kind do."""

from __future__ import annotations

from typing import Any

from rolltree.analysis.step_rows import RowRules, sft_rows
from rolltree.testing.tiny import CODEC
from rolltree.tree.steps import STEP_VALUE, THOUGHT
from rolltree_papers.webstar import GradedSteps
from tests.generate.search.test_answer_methods import grown, main_trees


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
