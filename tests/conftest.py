"""Two ways to draw examples: the same ones for one commit (`make test`, never timed), or new ones (plain pytest)."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
