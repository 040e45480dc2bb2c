"""Ways to draw examples: the same ones for one commit (`make test`), new ones (plain pytest), or more and new ones
(`make night`, which prints the seed)."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("night", max_examples=300, deadline=None, print_blob=True)
