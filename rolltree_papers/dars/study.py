"""DARS on simulated prompts, held against one width everywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rolltree.control.plan import Control, Uniform
from rolltree_papers.dars import Dars, Schedule
from studies.lab.claim import Measured
from studies.prompts.checks import until
from studies.prompts.page import columns, table
from studies.prompts.world import Log, PromptWorld, grouped, index, mass, run


def hard_share(schedule: Schedule | None, seed: int, width: int = 8) -> tuple[float, float]:
    """Share of Σ|A| on prompts with a pass rate below 1/4, and rollouts per prompt."""
    world = PromptWorld(2000, seed=seed, spread=2.0, gain=0.0, drift=0.0)
    (log,) = run(Uniform() if schedule is None else Dars(schedule), world, 1, prompts=2000, width=width)
    masses = {index(g[0].order): mass(g) for g in grouped(log.delivered).values()}
    hard = sum(m for i, m in masses.items() if world.rates[i] < 0.25)
    return hard / sum(masses.values()), log.rollouts / 2000


def solvable(world: PromptWorld, tries: int = 128) -> float:
    """Mean pass@k of all prompts, k the paper's 128."""
    return float((1 - (1 - world.rates) ** tries).mean())


def dars(seed: int) -> Measured:
    """pass@128 of all prompts after 40,000 rollouts: even DARS against a uniform width of as many rollouts a step.

    At the start some 31 % of single answers are right and 70 % of the prompts are solved within 128. The curves have
    pass@1 of all prompts, and of those that began below 1/4.
    """
    ours, plain = (PromptWorld(200, seed=seed, mean=-2.5, spread=4.5, gain=0.5) for _ in range(2))
    logs = until(Dars(), ours, 40_000)
    until(Uniform(), plain, 40_000, round(sum(log.rollouts for log in logs) / (16 * len(logs))))
    hard = ours.begun < np.log(1 / 3)
    curves = {
        "pass@1, by arm": ([0.0, 1.0], [float(w.rates.mean()) for w in (ours, plain)]),
        "pass@1 of hard prompts, by arm": ([0.0, 1.0], [float(w.rates[hard].mean()) for w in (ours, plain)]),
    }
    acted = {"rollouts of groups wider than others of their step": float(sum(widened(log) for log in logs))}
    return Measured(solvable(ours), solvable(plain), curves, acted)


def widened(log: Log) -> int:
    """Rollouts that groups of a step have above its narrowest."""
    sizes = [sum(d.n for d in group) for group in grouped(log.delivered).values()]
    return sum(sizes) - len(sizes) * min(sizes)


CONTROLS: dict[str, Callable[[PromptWorld], Control]] = {
    "dars even": lambda _: Dars("even"),
    "dars hard": lambda _: Dars("hard"),
}
"""What runs beside the other controls (`studies.prompts.page`)."""


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Widths (DARS)",
        "Share of Σ|A| on prompts solved less than a quarter of the time, at equal rollouts, first round of 8.",
        table(["schedule", "share", "rollouts per prompt", "uniform with as many"], [
            (schedule, columns(lambda s, k=schedule: _mass(k, s))) for schedule in ("even", "hard")
        ]),
    ]  # fmt: skip


def _mass(schedule: str, seed: int) -> tuple[float, float, float]:
    share, used = hard_share("hard" if schedule == "hard" else "even", seed)
    return share, used, hard_share(None, seed, round(used))[0]
