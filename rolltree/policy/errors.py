"""What goes wrong with models."""

from __future__ import annotations

from rolltree.errors import RolltreeError


class ModelError(RolltreeError, RuntimeError):
    """A model cannot be loaded or used: names the model, what is wrong and the way out."""
