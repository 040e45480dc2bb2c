"""What `aepo` promises beside what all of its kind do."""

from rolltree.generate.signals import Signal
from rolltree.generate.turnforks import TurnForks
from rolltree.testing.tiny import Walk
from rolltree_papers.aepo import Balanced
from tests.generate.test_trees import grown


def test_a_probe_thrown_away_is_paid_for_and_no_leaf() -> None:
    inner = TurnForks(leaves=6, first=3, signal=Signal("entropy:top", 5))
    for keep in (True, False):
        for tree in grown(Balanced(inner, keep=keep), Walk(), n=3):
            assert any("thrown away" in e.why for e in tree.events if e.kind == "prune") is not keep
            assert sum(leaf.status == "done" for leaf in tree.leaves()) == 6
