"""Which policy a ratio is taken against, as recipes name it."""

from __future__ import annotations

from typing import Literal, get_args

from rolltree.objective.errors import ObjectiveError

Against = Literal["old", "sampled"]
"""What a surrogate's ratio divides by: the weights at the start of the step, or the distribution sampled from."""


def against(distribution: Against) -> tuple[str, ...]:
    """The names of the corrections that make a surrogate's ratio one against this distribution."""
    if distribution not in get_args(Against):
        raise ObjectiveError(f"a ratio is taken against 'old' or 'sampled', not {distribution!r}")
    return ("bypass",) if distribution == "sampled" else ()
