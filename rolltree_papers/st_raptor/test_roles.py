"""What `st_raptor` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.control.ledger import Budget
from rolltree.generate.judge.backward import Backward, alike
from rolltree.generate.judge.calibration import auc
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import JudgeError
from rolltree.generate.judged import graded
from rolltree.generate.roles import is_side
from rolltree.generate.strategy import TreeStrategy
from rolltree_papers.st_raptor import BestJudged
from rolltree_papers.st_raptor.study import backwards
from studies.roles import ALONE, grown, reader, right, waves


@pytest.mark.parametrize(
    ("two", "one", "votes"), [(waves(), waves(32, waves=1), (232, 248)),
                              (waves(1, keep=1), BestJudged(2, Confidence()), (0, 0))],
)  # fmt: skip
def test_a_second_wave_is_held_against_as_many_attempts_at_once(
    two: TreeStrategy, one: TreeStrategy, votes: tuple[int, int]
) -> None:
    spent: list[Budget] = []
    for strategy in (two, one):
        spent.append(Budget())
        grown(strategy, 0, 5, reader(trusts=True), account=spent[-1])
    ours, flat = (account.spent for account in spent)
    assert ours.leaves == flat.leaves
    assert ours.decoded == flat.decoded
    assert (ours.judge_calls, flat.judge_calls) == (5 * votes[0], 5 * votes[1])
    assert ours.by_role["again"] > flat.by_role.get("again", 0) == 0


def test_the_way_back_chooses_where_answers_tell_their_question_and_not_where_they_do_not() -> None:
    def found(knows: float) -> tuple[float, float]:
        forest = grown(BestJudged(4, Backward("{text}")), 1, 60, backwards(knows))
        main = [tree for tree in forest if not is_side(tree)]
        leaves = [leaf for tree in main for leaf in tree.leaves()]
        return auc(*zip(*graded(leaves), strict=True)), right(forest)  # type: ignore[arg-type]

    known, blind = found(0.8), found(0.0)
    assert known == (1.0, pytest.approx(1 - (1 - ALONE) ** 4, abs=0.17))
    assert blind[0] == 0.5
    assert blind[1] == pytest.approx(ALONE, abs=0.17)
    two = [t for t in grown(BestJudged(8, Backward("{text}")), 1, 40, backwards(0.8, 2)) if not is_side(t)]
    leaves = [leaf for tree in two for leaf in tree.leaves()]
    assert 0.8 < auc(*zip(*graded(leaves), strict=True)) < 1.0, "a wrong answer leads to the question too"  # type: ignore[arg-type]
    with pytest.raises(JudgeError, match="and never"):
        Backward("{prompt}{text}")
    assert [alike("abc", other) for other in ("abc", "xyz")] == [1.0, 0.0]
    assert 0 < alike("abcd", "abce") < 1
