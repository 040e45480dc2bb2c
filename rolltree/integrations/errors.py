"""What adapters say when another library is missing or asks for something Rolltree cannot give."""

from __future__ import annotations

from rolltree.errors import RolltreeError


class AdaptError(RolltreeError):
    """A foreign trainer, data set or reward function that cannot be joined; names the thing and the way out."""
