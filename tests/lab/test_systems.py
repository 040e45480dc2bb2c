"""Systems that are no recipe claim something too, under names of their own."""

from pathlib import Path

import pytest

from rolltree.recipe.registry import recipes
from studies.lab.claim import claim_of, claims
from studies.lab.systems import SYSTEMS

DOCS = Path(__file__).parents[2] / "docs" / "measured"


def test_systems_are_claims_beside_recipes():
    made = {claim.name for claim in claims()}
    assert set(SYSTEMS) <= made
    assert not set(SYSTEMS) & set(recipes())
    for name, system in SYSTEMS.items():
        assert system.card.name == name
        assert (DOCS / system.page.partition("#")[0]).resolve().is_file(), f"{name} stands on a page that is not there"


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_a_systems_check_is_found_and_rests_on_its_own_code(name):
    claim = claim_of(name)
    assert callable(claim.check())
    assert claim.question.check.partition(":")[2] in claim.sources()
    assert not {"Grpo", "BestOfN"} & claim.sources().keys(), "a system has no recipe"
