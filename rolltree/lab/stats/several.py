"""Several comparisons at once: Holm's step-down procedure (1979), which keeps the chance of any error at alpha, and
Benjamini and Hochberg's (1995), which keeps the expected share of errors among what is found at q."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values: comparing each with alpha rejects what Holm's procedure rejects."""
    adjusted = [1.0] * len(p)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        highest = max(highest, min(1.0, p[i] * (len(p) - rank)))
        adjusted[i] = highest
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjusted p-values: comparing each with q rejects what Benjamini and Hochberg's procedure rejects."""
    adjusted, least = [1.0] * len(p), 1.0
    order = sorted(range(len(p)), key=lambda i: p[i])
    for rank in range(len(p), 0, -1):
        i = order[rank - 1]
        least = min(least, p[i] * len(p) / rank)
        adjusted[i] = least
    return adjusted


def holm_alphas(p: Sequence[float], alpha: float = 0.05) -> list[float]:
    """The alpha at which each comparison is judged, so that its own 1 − alpha interval says what Holm says.

    The k-th smallest p-value is judged at alpha/(m − k + 1); from the first that is not rejected on, alpha stays put.
    """
    out = [alpha] * len(p)
    stopped: float | None = None
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        own = alpha / (len(p) - rank)
        out[i] = own if stopped is None else stopped
        if stopped is None and p[i] > own:
            stopped = own
    return out
