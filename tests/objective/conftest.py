"""Hypothesis settings; random trees come from `rolltree.testing.objective`."""

from hypothesis import settings

settings.register_profile("objective", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("objective")
