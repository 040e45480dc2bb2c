"""Orders of a grid of blocks × denoising steps, whether they keep its dependencies, and how long they take.

A long video is denoised block after block (self forcing), or all blocks step by step (HiAR), so that a block's context
is as noisy as itself. Staged best-of-n with a judge (MIND-V) is a chain of such grids. This is control flow and
makespan alone: no model of video is part of this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from rolltree.errors import RolltreeError


class BlockError(RolltreeError, ValueError):
    """An order that breaks its grid: names the cell and what must stand before it."""


class BlockStep(NamedTuple):
    """One denoising step of one block, both from 0 on."""

    block: int
    step: int


Order = Literal["blocks", "steps"]


def order(blocks: int, steps: int, by: Order) -> list[BlockStep]:
    """Every cell: block-outer ("blocks") or step-outer ("steps": HiAR)."""
    if by == "blocks":
        return [BlockStep(b, s) for b in range(blocks) for s in range(steps)]
    return [BlockStep(b, s) for s in range(steps) for b in range(blocks)]


def needs(cell: BlockStep, steps: int, by: Order) -> list[BlockStep]:
    """What must be done before a cell.

    Block-outer: the step before, and all earlier blocks to their end. Step-outer: the step before, and all earlier
    blocks after this same step, whose keys and values must be written again at every level.
    """
    own = [BlockStep(cell.block, cell.step - 1)] if cell.step else []
    level = steps - 1 if by == "blocks" else cell.step
    return own + [BlockStep(b, level) for b in range(cell.block)]


def check_order(cells: Iterable[BlockStep], steps: int, by: Order) -> None:
    """Refuse an order in which a cell stands before something it needs."""
    done: set[BlockStep] = set()
    for cell in cells:
        missing = [need for need in needs(cell, steps, by) if need not in done]
        if missing:
            raise BlockError(
                f"step {cell.step} of block {cell.block} stands before step {missing[0].step} of block "
                f"{missing[0].block}, which it needs; order the grid by {by}"
            )
        done.add(cell)


def makespan(blocks: int, steps: int, by: Order, devices: int, *, pinned: bool = True) -> int:
    """Units of time until the grid is done, a cell taking one; `pinned`: device s holds the weights of step s alone.

    Step-outer with a device for each step is a wavefront: blocks + steps − 1. Block-outer never overlaps.
    """
    if blocks < 1 or steps < 1 or devices < 1:
        raise BlockError(f"a grid of {blocks} blocks and {steps} steps on {devices} devices: each must be at least 1")
    end: dict[BlockStep, int] = {}
    free = [0] * devices
    for cell in order(blocks, steps, by):
        ready = max((end[need] for need in needs(cell, steps, by)), default=0)
        device = cell.step % devices if pinned else min(range(devices), key=free.__getitem__)
        end[cell] = free[device] = max(ready, free[device]) + 1
    return max(end.values())


def staged(stages: int, tries: Sequence[int], cost: int, devices: int) -> int:
    """Units of time of a staged best-of-n, which is a chain (MIND-V, reconstructed from its abstract).

    Each stage draws `tries[i]` clips of `cost` units, a judge keeps one, and the next stage begins from it.
    """
    if len(tries) != stages or min(tries, default=1) < 1:
        raise BlockError(f"{stages} stages with the tries {list(tries)}: give one number, at least 1, for each stage")
    return sum(-(-n // devices) * cost for n in tries)
