"""What goes wrong with objectives."""

from __future__ import annotations

from rolltree.errors import RolltreeError


class ObjectiveError(RolltreeError, ValueError):
    """A batch lacks what an objective needs; names both and the way out."""
