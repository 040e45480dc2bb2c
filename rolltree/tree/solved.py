"""What counts as right."""

from __future__ import annotations

from collections.abc import Mapping

SOLVED = 1 - 1e-9
"""An outcome of at least this counts as solved, where the verifier does not say itself what does."""


def is_solved(scores: Mapping[str, float]) -> bool:
    """Whether a judged leaf counts as right: as the verifier says, else by its outcome."""
    return scores.get("solved", scores.get("outcome", scores["reward"])) >= SOLVED
