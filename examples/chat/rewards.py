"""A reward of one's own for the sums: the form of the answer, whatever it says (as TRL calls rewards)."""

import re
from collections.abc import Sequence
from typing import Any

EQUATION = re.compile(r"\d+ \+ \d+ = \d+\.?")


def equation(completions: Sequence[Any], **columns: Any) -> list[float]:
    """1 where the whole answer is one equation such as "4 + 5 = 9", else 0."""
    return [float(EQUATION.fullmatch(text_of(completion).strip()) is not None) for completion in completions]


def text_of(completion: Any) -> str:
    """The text of a completion, which is a list of messages where the data holds conversations."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
