"""`rolltree evidence`: what the recipes' cards claim, put to the test. The laboratory for it is in a checkout alone."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from rolltree.errors import RolltreeError


def run(arguments: Sequence[str]) -> int:
    """Parse and run, where the authors' laboratory is at hand."""
    try:
        command = importlib.import_module("studies.lab.evidence_command")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("studies"):
            raise
        raise RolltreeError(
            "evidence is made in a checkout of Rolltree's source, and this package is installed without one; clone the "
            "source and run it there"
        ) from error
    return command.run(arguments)
