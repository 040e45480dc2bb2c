"""Hints whose length follows the accuracy (SEELE) on simulated prompts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rolltree.control.plan import Control, Uniform
from rolltree_papers.seele import Seele
from studies.lab.claim import Measured
from studies.prompts.oracles import FixedHint
from studies.prompts.page import columns, table
from studies.prompts.world import PromptWorld, grouped, index, run, sigmoid


def hint_rounds(control: Control, seed: int, visits: int = 3) -> tuple[list[list[float]], int]:
    """True accuracies of the rollouts of each round of the last visit, and how often a hint changed between rounds."""
    world = PromptWorld(60, seed=seed, mean=-4.0, spread=2.0, gain=0.0, drift=0.05)
    log = run(control, world, visits, prompts=60, width=32)[-1]
    world_at = world.logits  # within a visit nothing moves; the drift after it is small
    rounds, changed = list[list[float]](), 0
    for group in grouped(log.delivered).values():
        hints = ["" if d.order.brief is None else d.order.brief.text for d in group]
        changed += sum(a != b for a, b in pairwise(hints))
        for k, d in enumerate(group):
            if k == len(rounds):
                rounds.append([])
            shown = 0.0 if d.order.brief is None else len(d.order.brief.text) / 10
            rounds[k].append(float(sigmoid(world_at[index(d.order)] + world.per_hint * shown)))
    return rounds, changed


def seele(seed: int) -> Measured:
    """a(1−a) over the rollouts of the third visit, against half of the answer for everybody."""
    ours, changed = hint_rounds(Seele(), seed)
    half = _spread(hint_rounds(FixedHint(0.5), seed)[0])
    return Measured(_spread(ours), half, acted={"hints changed": float(changed)})


def _spread(rounds: list[list[float]]) -> float:
    values = np.array([a for r in rounds for a in r])
    return float((values * (1 - values)).mean())


HINTS: dict[str, Control] = {
    "none": Uniform(),
    "half of the answer": FixedHint(0.5),
    "seele": Seele(),
    "seele, nothing stored": Seele(stored=False),
}


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Hints (SEELE)",
        "a(1−a) of 60 prompts, logits N(−4, 2²) and +8 for the whole answer, over the rollouts of a visit.",
        table(["hints", "first visit", "third visit"], [
            (n, columns(lambda s, m=m: [_spread(hint_rounds(m, s, k)[0]) for k in (1, 3)])) for n, m in HINTS.items()
        ]),
    ]  # fmt: skip
