"""What `xrpo` promises beside what all of its kind do."""

import numpy as np
import pytest

from rolltree_papers.xrpo import half_width, priority


def test_xrpos_priority_narrows_with_rollouts_and_dead_prompts_keep_the_bonus():
    assert half_width(0.5, 4) == pytest.approx(3.182446 * 0.25, rel=1e-5)
    gains = [priority(0.5, n, 100, explore=0.0) for n in range(2, 12)]
    assert gains == sorted(gains, reverse=True)
    assert priority(0.0, 4, 100) > priority(0.0, 8, 100) > 0
    assert np.isfinite(priority(0.5, 1, 100))
