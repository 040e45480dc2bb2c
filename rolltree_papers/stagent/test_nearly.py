"""What `stagent` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.control.order import Delivery, Order
from rolltree_papers.stagent import Stagent, mean_times_variance
from studies.prompts.world import PromptWorld, run


def test_stagent_scores_graded_rewards_by_their_own_variance() -> None:
    assert mean_times_variance([1.0, 1.0, 0.0]) == pytest.approx(2 / 3 * 2 / 9)
    assert mean_times_variance([0.5] * 4) == 0.0, "a rubric that always says one half tells nothing"
    even = Stagent(2, candidates=2, rollouts=4)

    class Graded(PromptWorld):
        def serve(self, order: Order, width: int) -> Delivery:
            n = order.width or width
            rewards = (0.5,) * n if order.prompt.uid == "p0" else (0.2, 0.4) * (n // 2)
            return Delivery(order, rewards, (1,) * n)

    (log,) = run(even, Graded(logits=np.zeros(2), gain=0.0), 1, prompts=1, width=4)
    assert [d.order.prompt.uid for d in log.delivered if d.order.for_training] == ["p1"]


def test_stagent_takes_the_upper_frontier() -> None:
    world = PromptWorld(logits=np.linspace(-4, 4, 81), drift=0.0, gain=0.0)
    (log,) = run(Stagent(81, candidates=81, rollouts=400), world, 1, prompts=10, width=4)
    chosen = [int(d.order.prompt.uid[1:]) for d in log.delivered if d.order.for_training]
    assert world.rates[chosen].mean() == pytest.approx(2 / 3, abs=0.06)
    measured = [d for d in log.delivered if not d.order.for_training]
    assert len(measured) == 81
    assert all(d.n == 400 for d in measured)
