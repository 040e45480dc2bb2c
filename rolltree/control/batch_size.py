"""How many prompts a step needs for its gradient to be more than noise."""

from __future__ import annotations

import math

from rolltree.control.order import ControlError


def norm_test(ratio: float | None, prompts: int, eta: float, most: int) -> int:
    """The next step's prompts: as many as now where Var/B ≤ η²‖g‖², else ⌈Var/(η²‖g‖²)⌉; never fewer, at most `most`.

    `ratio` is Var/‖g‖², Var the variance of a prompt's gradient around the batch's g (AdAdaGrad, arXiv 2402.11215).
    None = nothing was measured, and nothing changes.
    """
    if eta <= 0 or most < 1:
        raise ControlError(f"a norm test with eta={eta} and most={most} prompts says nothing; give both above 0")
    if ratio is None or math.isnan(ratio) or ratio <= eta**2 * prompts:
        return min(prompts, most)
    wanted = ratio / eta**2
    return most if wanted >= most else max(prompts, math.ceil(wanted))


def true_ratio(ratio: float, prompts: int) -> float:
    """Var/‖E g‖² from what a batch of so many prompts shows: its own g is longer than the mean by its noise, Var/B
    (arXiv 1812.06162, appendix A.1). Infinite where noise is all there is."""
    return ratio / (1 - ratio / prompts) if ratio < prompts else math.inf
