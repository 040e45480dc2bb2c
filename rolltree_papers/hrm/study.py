"""What labels of merged steps are worth where errors are mended: `python -m rolltree_papers.hrm.study`.

A chain of steps is right at first. A right chain goes wrong at a step with .2, a wrong one is mended with .3; a step
shows, with some noise, whether it errs and whether it mends. A logistic head learns from as many nodes of trees: single
steps alone, merged pairs beside them (HRM), or single steps of the tree and of its compression too (HNC). It reads the
chain step by step and the best of N chains is taken. Values of nodes are shares of right leaves below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from rolltree.analysis.compress import StepRun, compressed
from rolltree.analysis.step_head import fitted
from studies.command import run_study
from studies.lab.claim import Measured

How = Literal["single", "merged", "compressed"]
ERR, MEND, LENGTH, WAYS = 0.2, 0.3, 5, 5
Step = tuple[int, int]
"""Whether it seems to err, and to mend."""


def stepped(right: bool, rng: Random, noise: float) -> tuple[Step, bool]:
    """A step of a chain, and whether it is right then."""
    errs, mends = right and rng.random() < ERR, not right and rng.random() < MEND
    seen = (int(errs != (rng.random() < noise)), int(mends != (rng.random() < noise)))
    return seen, (right and not errs) or mends


def grown(height: int, rng: Random, noise: float, right: bool = True, text: str = "") -> StepRun:
    """A whole tree; a block's text is two digits a step."""
    block = StepRun(text)
    if not height:
        block.right, block.leaves = int(right), 1
        return block
    for _ in range(WAYS):
        (errs, mends), after = stepped(right, rng, noise)
        block.children.append(grown(height - 1, rng, noise, after, f"{errs}{mends}"))
    return block


def features(text: str) -> list[float]:
    """Of a block: errors and mends in it, and whether one mends what it erred."""
    errs = [int(c) for c in text[::2]]
    mends = [int(c) for c in text[1::2]]
    return [float(sum(errs)), float(sum(mends)), float(any(errs[:-1]) and bool(mends[-1]))]


def examples(root: StepRun, how: How, rng: Random) -> Iterator[tuple[list[float], float]]:
    """Blocks with their values."""
    below = [(root, child) for child in root.children]
    while below:
        above, block = below.pop()
        yield features(block.text), block.value
        if how == "merged" and above.text:
            yield features(above.text + block.text), block.value
        below += [(block, child) for child in block.children]
    if how == "compressed":
        yield from examples(compressed(root, rng)[0], "single", rng)


def best_of(
    how: How, seed: int, counts: tuple[int, ...] = (1, 4, 16, 64), noise: float = 0.1, trees: int = 4
) -> list[float]:
    """Share of right answers by the head's best of so many chains: the product of its steps' scores."""
    rng = Random(f"merged/{seed}")
    found = [e for _ in range(trees) for e in examples(grown(4, rng, noise), how, Random(f"hnc/{seed}"))]
    head = fitted(np.asarray([x for x, _ in found]), np.asarray([y for _, y in found]), 1.0, "")
    kinds = [(errs, mends) for errs in (0, 1) for mends in (0, 1)]
    worth = {k: float(np.log(head.of(np.asarray([features(f"{k[0]}{k[1]}")]))[0])) for k in kinds}
    out: list[float] = []
    for count in counts:
        right = 0
        for prompt in range(400):
            draw, best = Random(f"chains/{seed}/{prompt}"), (-np.inf, False)
            for _ in range(count):
                state, score = True, 0.0
                for _ in range(LENGTH):
                    seen, state = stepped(state, draw, noise)
                    score += worth[seen]
                best = max(best, (score, state))
            right += best[1]
        out.append(right / 400)
    return out


def merged(seed: int) -> Measured:
    """Best of 64 with merged pairs against single steps."""
    whole = grown(4, Random(f"merged/{seed}"), 0.1)
    rows = {how: sum(1 for _ in examples(whole, how, Random())) for how in ("merged", "single")}
    return Measured(best_of("merged", seed, (64,))[0], best_of("single", seed, (64,))[0],
                    acted={"merged pairs of a tree": float(rows["merged"] - rows["single"])})  # fmt: skip


@dataclass(frozen=True)
class MergedSettings:
    """How much is run."""

    seeds: int = 5
    """Sets of trees."""
    noise: float = 0.1
    """How often a step seems to be what it is not."""


def main(settings: MergedSettings) -> None:
    """Right answers by the number of chains."""
    arms: tuple[How, ...] = ("single", "merged", "compressed")
    for how in arms:
        rows = np.asarray([best_of(how, seed, noise=settings.noise) for seed in range(settings.seeds)])
        print(
            f"{how:10s} "
            + "  ".join(f"best of {n}: {x:.3f}" for n, x in zip((1, 4, 16, 64), rows.mean(0), strict=True))
        )


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.hrm.study", MergedSettings, main, __doc__))
