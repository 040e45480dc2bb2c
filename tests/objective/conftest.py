"""Hypothesis settings and one fixed batch; random trees come from `rolltree.contract.objective`."""

from __future__ import annotations

import pytest
from hypothesis import settings

from rolltree.contract.objective import Pair, random_pair

settings.register_profile("objective", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("objective")


@pytest.fixture
def pair() -> Pair:
    """One fixed pair."""
    return random_pair(0)
