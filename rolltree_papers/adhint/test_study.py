"""What `adhint` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np

from rolltree_papers.adhint import study as chain


def test_masked_hints_are_not_unlearned() -> None:
    """After one step the shown digits of a hint whose rollouts mostly failed are less likely only without the mask."""
    policy = chain._softmax(chain.start(np.random.default_rng(0)))[0]
    tree = chain.Tree("p0", [0])
    rng = np.random.default_rng(2)
    for _ in range(8):
        chain._rolled(tree, policy, 4, rng)
    leaves = tree.leaves()
    for i, leaf in enumerate(leaves):
        leaf.scores["reward"] = float(i == 0)
    pushes = [
        chain._direction([tree], policy[None], chain.HintWay(lambda _: 0.5, "hinted", masked))[0, :4, 0]
        for masked in (True, False)
    ]
    assert (pushes[0] >= 0).all()
    assert np.abs(pushes[0] - pushes[1]).max() > 0
    np.testing.assert_allclose(chain.success(np.zeros((1, 8, 10))), 1e-8)
