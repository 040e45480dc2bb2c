"""What the searches of 0.1 grew they still grow, to the token."""

from __future__ import annotations

import pytest

from rolltree_papers.mars2 import Attempts, Prior
from rolltree_papers.mars2.study import mars2
from studies.searches import drafter, grown, mender
from tests.generate.search.prints import print_of, spelled

FORESTS = {
    "attempts": lambda: spelled(Attempts(8)),
    "two agents": lambda: grown(Attempts(12), 3, 6, drafter(), peer=mender()),
    "by chance": lambda: grown(Attempts(9, choose="chance"), 1, 6, drafter(), peer=mender()),
    "wide": lambda: grown(Attempts(5, choose="wide"), 1, 6, drafter(), peer=mender()),
    "beta": lambda: grown(Attempts(8, prior=Prior("beta")), 1, 6, drafter(), peer=mender()),
}
GROWN = {
    "attempts": "855cdd38b524",
    "two agents": "f56ebdaf93a8",
    "by chance": "05492384c9e8",
    "wide": "286966b33cef",
    "beta": "32268d852a3e",
}
"""As the code of before the search primitive grew them."""


@pytest.mark.parametrize("name", FORESTS)
def test_the_same_forests(name: str) -> None:
    assert print_of(FORESTS[name]()) == GROWN[name]


def test_the_stored_evidence_to_the_digit() -> None:
    """`evidence.json`, seed 0."""
    found = mars2(0)
    assert (found.value, found.baseline) == (0.5533333333333333, 0.5333333333333333)
