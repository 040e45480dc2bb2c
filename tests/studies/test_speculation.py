"""What the spine is held against guesses as much, and never both copies and branches."""

from __future__ import annotations

from rolltree.engine.local.speculate.spec import Speculation
from studies.speculation import BALANCED, WatchedSpine, counted


def test_the_balanced_tree_has_as_many_guesses_as_the_spine_and_no_copies() -> None:
    spine, tree = WatchedSpine(), counted(BALANCED, 7)
    ours = counted(Speculation("adjacent", spine), 7)
    assert ours.drafted / ours.rows <= tree.drafted / tree.rows
    assert any(spine.mixed)
    assert BALANCED.shape is not None
    assert not isinstance(BALANCED.shape, WatchedSpine)
