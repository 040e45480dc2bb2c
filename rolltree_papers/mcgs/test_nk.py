"""MCGS on exact landscapes: gains where blocks are separable, none where every change makes all blocks new."""

from __future__ import annotations

import numpy as np

from rolltree_papers.mcgs.study import ARMS, run


def gaps(k: int, arm: str, against: str = "UCT", seeds: int = 16, turns: int = 250) -> np.ndarray:
    return np.array([run(ARMS[arm], k, s, turns)[0] - run(ARMS[against], k, s, turns)[0] for s in range(seeds)])


def test_gains_on_separable_landscapes_and_none_at_k_of_all_others() -> None:
    easy, hard = gaps(0, "MCGS"), gaps(4, "MCGS")
    assert easy.mean() > 0.03
    assert easy.mean() > 3 * easy.std(ddof=1) / len(easy) ** 0.5
    assert abs(hard.mean()) < 3 * hard.std(ddof=1) / len(hard) ** 0.5 + 0.01
    assert easy.mean() > hard.mean()


def test_each_switch_takes_its_operator_away_and_nothing_else() -> None:
    used = {name: run(rules, 0, 1, 200)[1].used for name, rules in ARMS.items()}
    assert {"draft", "improve", "debug", "evolve", "fuse", "aggregate"} <= used["MCGS"].keys()
    without = {"evolution": "evolve", "fusion": "fuse", "aggregation": "aggregate"}
    for name, gone in ((f"without {what}", operator) for what, operator in without.items()):
        assert gone not in used[name]
        assert used["MCGS"].keys() - {gone} == used[name].keys() - {gone}
    assert used["UCT"].keys() <= {"draft", "improve", "debug"}
    assert used["MCGS"]["aggregate"] <= 2


def test_workers_change_which_nodes_are_known_and_not_the_outcome_of_a_seed() -> None:
    assert run(ARMS["MCGS"], 0, 3, 120)[0] == run(ARMS["MCGS"], 0, 3, 120)[0]
    assert run(ARMS["MCGS"], 0, 3, 120, workers=1)[1].used != run(ARMS["MCGS"], 0, 3, 120, workers=6)[1].used
