"""Every check of a claim counts what its mechanism did, so that an experiment in which it did nothing can be void."""

import pytest

from studies.lab.claim import claim_of, claims
from studies.lab.entry import load_entry
from studies.lab.places import EVIDENCE

CHEAP = ("dars", "dots", "guide", "remax", "scaler", "v05")
"""Checks that take a second or less."""


@pytest.mark.parametrize("name", [claim.name for claim in claims() if claim.question.check])
def test_a_stored_check_says_how_often_its_mechanism_acted(name: str) -> None:
    entry = load_entry(name, EVIDENCE)
    if entry is None:
        pytest.skip("its evidence is not made")
    assert all(result.also for result in entry.results), f"the check of {name} gives no `acted`"


@pytest.mark.parametrize("name", CHEAP)
def test_a_check_counts_what_its_mechanism_did(name: str) -> None:
    acted = claim_of(name).check()(0).acted
    assert acted
    assert all(type(count) is float for count in acted.values())
