"""Which policy a ratio is taken against, as recipes name it; this loads no torch."""

from __future__ import annotations

from typing import Literal, get_args

from rolltree.errors import RolltreeError

Against = Literal["old", "sampled"]
"""What a surrogate's ratio divides by: the weights at the start of the step, or the distribution sampled from."""


class ObjectiveError(RolltreeError, ValueError):
    """A batch lacks what an objective needs; names both and the way out."""


def against(distribution: Against) -> tuple[str, ...]:
    """The names of the corrections that make a surrogate's ratio one against this distribution."""
    if distribution not in get_args(Against):
        raise ObjectiveError(f"a ratio is taken against 'old' or 'sampled', not {distribution!r}")
    return ("bypass",) if distribution == "sampled" else ()
