"""The error of this package."""

from __future__ import annotations

from rolltree.errors import RolltreeError


class StatsError(RolltreeError, ValueError):
    """Statistics were asked of numbers that cannot give them; says which and what would."""
