"""What `seele` promises beside what all of its kind do."""

import numpy as np

from rolltree.control.order import PLAIN
from rolltree_papers.seele import Seele
from studies.prompts.world import PromptWorld, run


def test_seele_brings_accuracy_to_one_half_by_rounds():
    world = PromptWorld(40, seed=1, mean=-4.0, spread=2.0, gain=0.0, drift=0.0)
    (*_, log) = run(Seele(), world, 3, prompts=40, width=32)
    off = [abs(world.rate(d.order) - 0.5) for d in log.delivered]
    assert np.mean(off) < 0.25
    assert all((d.order.brief is None) == (d.order.arm == PLAIN) for d in log.delivered)
