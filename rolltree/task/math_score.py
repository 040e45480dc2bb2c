"""Whether a text ends in a mathematical answer, by math-verify (Hugging Face); see `math_judge` for who asks it."""

from __future__ import annotations

from typing import Any

from rolltree.errors import RolltreeError
from rolltree.task.items import TaskError
from rolltree.task.protocol import Verdict


class ScorerMissingError(RolltreeError, ImportError):
    """math-verify is not installed."""


def require_math() -> Any:
    """math-verify, or one sentence on how to get it."""
    try:
        import math_verify
    except ImportError:
        raise ScorerMissingError("math answers are scored by math-verify: pip install 'rolltree[math]'") from None
    return math_verify


def score_math(answer: str, text: str) -> Verdict:
    """Whether the last expression of a text equals the answer. The verdict's answer is that expression, simplified."""
    library = require_math()
    gold = library.parse(answer, parsing_timeout=None)
    if not gold:
        raise TaskError(f"the reference answer {answer!r} is not a mathematical expression math-verify can read")
    found = library.parse(text, parsing_timeout=None)
    if not found:
        return Verdict(0.0, {"parses": 0.0}, why="no mathematical expression was found")
    right = bool(library.verify(gold, found, timeout_seconds=None))
    why = "" if right else f"found {found[-1]} instead of {answer}"
    return Verdict(float(right), {"parses": 1.0}, str(found[0]), why)
