"""Reading JSON that others wrote: whatever Python cannot read is one kind of error."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | bytes, **how: Any) -> Any:
    """As `json.loads`, but nesting too deep for Python is a ValueError too, as numbers too long for it are already."""
    try:
        return json.loads(text, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None


def why_not(error: ValueError) -> str:
    """What is wrong with a text that could not be read, in a few words."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
