"""What `swarm` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree_papers.swarm import study as swarm


def test_nodes_that_read_their_past_are_a_swarm_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arms differ in whose groups stand in the other half: no foreign group is in either baseline."""
    monkeypatch.setattr(swarm, "ROUNDS", 4)
    found = {reads: swarm.trained(0, reads) for reads in ("others", "its past", "nothing")}
    foreign = {reads: sum(node.foreign for node in nodes) for reads, nodes in found.items()}
    assert foreign["others"] > 0
    assert foreign["its past"] == foreign["nothing"] == 0
    drawn = {reads: sum(node.drawn for node in nodes) for reads, nodes in found.items()}
    full = swarm.NODES * swarm.ROUNDS * swarm.PER_ROUND * swarm.GROUP
    assert drawn["nothing"] == full
    assert full / 2 <= drawn["others"] < full
    assert full / 2 <= drawn["its past"] < full
