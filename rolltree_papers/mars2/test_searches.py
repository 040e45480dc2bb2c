"""What `mars2` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree_papers.mars2 import Attempts
from rolltree_papers.mars2.study import preference, variants
from studies.searches import Copying, drafter, grown, mender, solved
from studies.variants_page import ABOUT


def test_the_agents_are_what_they_are_called() -> None:
    """A drafter is right with 0.55 whatever it has seen; a mender with 0.25 at first, far more often behind a draft."""
    forest = grown(Attempts(6, agents=("policy", "peer"), choose="chance"), 0, 60, drafter(), peer=mender())
    first: dict[str, list[float]] = {"policy": [], "peer": []}
    later: dict[str, list[float]] = {"policy": [], "peer": []}
    for tree in forest:
        for node in tree:
            if "reward" in node.scores:
                deep = sum(n.role == "prompt" for n in tree.path(node)) > 1
                (later if deep else first)[node.actor].append(node.scores["reward"])
    assert np.mean(first["policy"]) == pytest.approx(0.55, abs=0.06)
    assert np.mean(first["peer"]) == pytest.approx(0.25, abs=0.06)
    assert np.mean(later["policy"]) == pytest.approx(0.55, abs=0.06)
    assert np.mean(later["peer"]) > 0.6


def test_same_seed_same_numbers() -> None:
    runs = [solved(grown(Attempts(6), 3, 20, drafter(), peer=mender())) for _ in range(2)]
    assert runs[0] == runs[1]
    assert Copying().max_turns == 0


def test_shaping_is_what_tells_improvement_apart() -> None:
    trees = list(grown(Attempts(12), 0, 30, drafter(), peer=mender()))
    plain = [preference(tree, gamma=0.0) for tree in trees]
    shaped = [preference(tree) for tree in trees]
    assert np.nanmax(np.abs(plain)) < 1e-9
    assert np.nanmean(shaped) > 0.1


def test_every_switch_is_explained() -> None:
    assert {f"{row.recipe}: {row.switch}" for row in variants(3, 0)} <= ABOUT.keys()
