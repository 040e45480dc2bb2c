"""Whether Python code that lies in a model's folder may run here: never, unless somebody said so."""

from __future__ import annotations

import os
from pathlib import Path

from rolltree.policy.errors import ModelError

ALLOWED = "ROLLTREE_TRUST_REMOTE_CODE"
"""Set to 1, it allows such code in this process and those it starts; `--trust-remote-code` sets it."""


def trusts_code() -> bool:
    """Whether it was allowed."""
    return os.environ.get(ALLOWED) == "1"


def trust_code() -> None:
    """Allow it from now on."""
    os.environ[ALLOWED] = "1"


def check_code(path: Path, error: Exception) -> None:
    """Say in one sentence that a model was refused for the code it brings; other errors are left to the caller."""
    if "trust_remote_code" in str(error):
        raise ModelError(
            f"the model in {path} brings Python code of its own, which is not run unless you say so; read it, and then "
            f"allow it with --trust-remote-code (or {ALLOWED}=1)"
        ) from None
