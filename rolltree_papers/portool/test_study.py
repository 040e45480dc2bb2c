"""What `portool` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.generate.forkall import ForkAll
from rolltree_papers.portool import study as portool_study
from studies.exact import checks


def test_portool_is_measured_on_the_forks_of_its_own_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[ForkAll] = []

    async def grow_tree(self, tree, hand):  # type: ignore[no-untyped-def]
        grown.append(self)
        await original(self, tree, hand)

    original = ForkAll.grow_tree
    monkeypatch.setattr(ForkAll, "grow_tree", grow_tree)
    monkeypatch.setattr(checks, "TREES", 60)
    monkeypatch.setattr(portool_study, "TREES", 60)
    first = portool_study.portool(0)
    assert len(grown) == 60
    assert portool_study.portool(0) == first
    assert first.value > 0
