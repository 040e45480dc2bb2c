"""How long a text a model reads in one and the same way, whatever stands beside it in a batch or a tree."""

from __future__ import annotations

from typing import Any

USUAL = 2048
"""Positions of a model whose config names none."""


def exact_context(config: Any) -> int:
    """Most tokens of a path of which every one sees all before it, by rotations that do not depend on the length.

    Below the model's own context where a sliding window is narrower, or where "longrope" changes the rotations of all
    positions as soon as any text of a forward is longer than the model was first trained for.
    """
    most = int(getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or USUAL)
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        most = min(most, int(rope.get("original_max_position_embeddings") or most))
    return min(most, window_of(config) or most)


def window_of(config: Any) -> int:
    """Tokens that each one sees of those before it, itself included; 0 = all."""
    slides = getattr(config, "use_sliding_window", True)
    return int(getattr(config, "sliding_window", None) or 0) if slides else 0
