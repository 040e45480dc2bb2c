"""Drift and makespan of the two orders of block × step: `python -m studies.latents.blocks`.

A long video is a chain of blocks here, each one number: x_b = ρ·x_{b−1} + √(1 − ρ²)·ε. A few-step denoiser draws x̂0
from the exact posterior, given the block's own latent and the block before it, adds a small bias, and puts fresh noise
on it down to the next level, as HiAR's student does (S063). Block-outer shows it the finished block before; step-outer
that block as it stands after the same step. Only the block before is context, which is all there is to know from a
clean one (reconstructed).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rolltree.latents.blocks import Order, check_order, makespan, order

BLOCKS, STEPS, RHO = 21, 4, 0.9
ORDERS: dict[Order, str] = {"blocks": "block-outer", "steps": "step-outer (HiAR)"}


def denoised(by: Order, bias: float, chains: int = 20_000, seed: int = 0) -> NDArray[np.float64]:
    """(blocks, chains) finished blocks, made in this order."""
    rng = np.random.default_rng(seed)
    levels = np.linspace(1, 0, STEPS + 1)
    state = rng.standard_normal((BLOCKS, chains))
    cells = order(BLOCKS, STEPS, by)
    check_order(cells, STEPS, by)
    for block, step in cells:
        own, there = float(levels[step]), float(levels[step + 1])
        # Of the block before: finished, or as it stands after this same step.
        known = 0.0 if by == "blocks" else there
        context = state[block - 1] if block else None
        clean = _posterior(state[block], own, context, known, rng) + bias
        state[block] = (1 - there) * clean + there * rng.standard_normal(chains)
    return state


def _posterior(
    latent: NDArray[np.float64], own: float, context: NDArray[np.float64] | None, known: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:  # fmt: skip
    """A draw of x_b given its latent at level `own` and the latent before it at level `known`."""
    seen, a, c = [latent], 1 - own, 1 - known
    cross, cov = [a], [[a**2 + own**2]]
    if context is not None:
        seen.append(context)
        cross.append(c * RHO)
        cov = [[a**2 + own**2, a * c * RHO], [a * c * RHO, c**2 + known**2]]
    weight = np.linalg.solve(np.array(cov), np.array(cross))
    spread = np.sqrt(max(1 - float(weight @ np.array(cross)), 0.0))
    return weight @ np.stack(seen) + spread * rng.standard_normal(len(latent))


def table(biases: tuple[float, ...] = (0.0, 0.05)) -> str:
    """Means of blocks, their deviation, the correlation of neighbours and the makespan with a device for each step."""
    heads = ("order", "bias", "mean of block 1", "of block 7", "of block 21", "deviation", "correlation of neighbours",
             "makespan")  # fmt: skip
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for bias in biases:
        for by, name in ORDERS.items():
            x = denoised(by, bias)
            near = np.mean([np.corrcoef(x[b], x[b + 1])[0, 1] for b in range(BLOCKS - 1)])
            means = " | ".join(f"{x[b].mean():.3f}" for b in (0, 6, 20))
            units = makespan(BLOCKS, STEPS, by, STEPS)
            rows.append(f"| {name} | {bias:g} | {means} | {x[20].std():.3f} | {near:.3f} | {units} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
