"""What `hapo` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np

from rolltree.tree.table import table
from rolltree_papers.hapo import log_entropy_rank
from tests.credit.test_shaping import dressed


def test_log_entropy_rank_is_signed_and_bounded():
    tab = table([dressed([1, 0], [[0.1, 0.5, 1.0, 2.0, 3.0], [0.2, 0.4, 0.8, 1.6, 3.2]])])
    entropy = tab.flat("entropy", 0.0)
    rank = log_entropy_rank(tab, entropy)[2:]
    assert rank.max() == 1
    assert rank.min() == -1
    assert (np.diff(rank[np.argsort(entropy[2:])]) >= 0).all()
