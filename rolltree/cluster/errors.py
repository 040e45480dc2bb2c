"""What goes wrong between processes."""

from __future__ import annotations

from rolltree.errors import RolltreeError


class ClusterError(RolltreeError):
    """The cluster cannot do what was asked: names the thing and the way out."""


class LostError(Exception):
    """The process that was asked is gone, or cannot be reached, which is the same to us: it will not be asked again."""
