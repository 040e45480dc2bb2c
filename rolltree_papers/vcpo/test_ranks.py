"""What `vcpo` promises beside what all of its kind do."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest

from rolltree.recipe.recipe import Parts, Peer
from rolltree.training.config import TrainError
from rolltree.training.ranks.driver import crewed
from tests.train.test_ranks import PARTS, learner


def test_what_ranks_cannot_share_is_refused_before_any_begins() -> None:
    from rolltree_papers.vcpo import Vcpo

    for parts, said in ((replace(PARTS, peers={"b": Peer()}), "several policies"), (Vcpo().build(), "path's own")):
        assert isinstance(parts, Parts)
        with pytest.raises(TrainError, match=rf"{said}.*ranks=2.*ranks=1"), crewed(learner(), parts, 2):
            pass
    assert not multiprocessing.active_children()
