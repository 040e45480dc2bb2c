"""I-MCTS's descent: what a prior of known correlation is worth in ten runs."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree_papers.i_mcts.study import RUNS, best_worth, means, out_of_order, searched

CARD = {-0.5: 0.612, 0.0: 0.641, 0.5: 0.676, 0.9: 0.701}
"""Best worth after ten runs by a quick simulation of the method's card, 2000 seeds."""


@pytest.mark.parametrize("rho", CARD)
def test_the_descent_gives_the_cards_numbers(rho: float) -> None:
    found = np.array([best_worth(rho, seed) for seed in range(250)])
    assert found.mean() == pytest.approx(CARD[rho], abs=3.5 * found.std() / len(found) ** 0.5)


def test_a_wrong_prior_hurts_the_descent_more_than_the_flat_argmax() -> None:
    descent, flat = means((-0.5, 0.5), 150), means((-0.5, 0.5), 150, flat=True)
    assert descent[1] - descent[0] > flat[1] - flat[0] + 0.01
    assert flat[0] > descent[0] + 0.01


def test_no_more_runs_than_asked_for() -> None:
    assert RUNS == 10
    assert best_worth(0.5, 3) == best_worth(0.5, 3)


def test_plain_uct_runs_siblings_as_they_were_proposed() -> None:
    blended, plain = ([searched(0.5, seed, prior=prior) for seed in range(20)] for prior in (0.2, 0.0))
    for graphs in (blended, plain):
        assert all(sum(node.value is not None for node in graph) == RUNS for graph in graphs)
    assert sum(map(out_of_order, blended)) > sum(map(out_of_order, plain)) == 0
