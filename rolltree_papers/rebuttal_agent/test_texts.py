"""What `rebuttal_agent` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest

from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Judge, JudgeError
from rolltree.generate.judged import judged_parts
from rolltree.generate.runner import grow
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree_papers.rebuttal_agent import Blocks, Unlike, Within
from tests.generate.judge.test_texts import said


def test_blocks_stand_once_in_order_and_alone() -> None:
    judge = Blocks(("A", "B"))
    right = "<A>x</A>\n<B>y</B>"
    assert said(judge, right, f" {right}\n") == [1.0, 1.0]
    wrong = "<B>y</B><A>x</A>", right + right, right + " more", "<A> </A><B>y</B>", "<A>x</A>", ""
    assert said(judge, *wrong) == [0.0] * len(wrong)


def test_a_missing_block_is_an_abstention_and_distance_is_from_the_nearest() -> None:
    far = Unlike(("thank you", "we will"))
    assert said(far, "we will") == [0.0]
    assert said(far, "xxxx") == [1.0]
    inner = said(Within("B", far), "<A>zzz</A><B>thank you</B>", "thank you", "<B>qq</B>")
    assert inner[0] == 0.0
    assert np.isnan(inner[1])
    assert inner[2] == 1.0
    with pytest.raises(JudgeError, match="asks an engine"):
        said(Unlike(("{prompt}",)), "x")
    with pytest.raises(JudgeError, match="at least one text"):
        Unlike(())


def test_judges_write_scores_of_their_own() -> None:
    task = SpellTask()
    judges: dict[str, Judge] = {"same": MeasuredJudge("reward"), "blocks": Blocks(("A",))}
    forest = asyncio.run(
        grow(judged_parts(Independent(4), judges), tiny_engine(), task, islice(task.items("train"), 2))
    )
    leaves = [leaf for tree in forest for leaf in tree.leaves()]
    assert [leaf.scores["same"] for leaf in leaves] == [leaf.scores["reward"] for leaf in leaves]
    assert {leaf.scores["blocks"] for leaf in leaves} == {0.0}
    assert not any("judge" in leaf.scores for leaf in leaves)
