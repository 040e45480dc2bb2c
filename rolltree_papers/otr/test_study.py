"""What `otr` promises beside what all of its kind do."""

from __future__ import annotations

from rolltree.objective.registry import load_objective
from rolltree_papers.otr import study as otr_study
from rolltree_papers.otr.study import lost_at


def test_fine_tuning_starts_where_the_first_language_was_learned() -> None:
    curves = [
        otr_study.tuned(load_objective(name, **knobs), 0, steps=3)
        for name, knobs in (("reinforce", {}), ("one_token", {"kappa": 1.2}))
    ]
    assert curves[0][0] == curves[1][0]
    assert curves[0][0][1] == 0
    assert curves[0][-1] != curves[1][-1]
    assert lost_at([(0.1, 0.0), (0.4, 2.0), (0.6, 3.0)], 0.3) == 2.0
    assert lost_at([(0.1, 0.0), (0.2, 1.0)], 0.9) == 1.0
