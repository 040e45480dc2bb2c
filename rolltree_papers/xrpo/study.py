"""XRPO's widths on simulated prompts, held against uniform ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rolltree.control.plan import Control, Uniform
from rolltree_papers.xrpo import Xrpo
from studies.lab.claim import Measured
from studies.prompts.checks import bandit, moved
from studies.prompts.oracles import OracleWidths
from studies.prompts.page import columns, table
from studies.prompts.world import PromptWorld, grouped, index, run


def mean_error(control: Control, world: PromptWorld, width: int = 8) -> tuple[float, float, int]:
    """Of one step over all prompts: mean squared error of the group means, groups with variance, and rollouts of
    groups above the width."""
    (log,) = run(control, world, 1, prompts=world.count, width=width)
    errors: list[float] = []
    for group in grouped(log.delivered).values():
        rewards = [r for d in group for r in d.rewards]
        errors.append((float(np.mean(rewards)) - float(world.rates[index(group[0].order)])) ** 2)
    return float(np.mean(errors)), float(log.effective), moved([log], width)


def xrpo(seed: int) -> Measured:
    """Error of group means: XRPO's widths against uniform ones, averaged over ten draws."""
    ours = [mean_error(Xrpo(examples=0), bandit(100 * seed + k)) for k in range(10)]
    even = [mean_error(Uniform(), bandit(100 * seed + k)) for k in range(10)]
    value, plain = (float(np.mean([error for error, _, _ in draws])) for draws in (ours, even))
    return Measured(value, plain, acted={"rollouts moved to other prompts": float(sum(n for _, _, n in ours))})


CONTROLS: dict[str, Callable[[PromptWorld], Control]] = {"xrpo (no examples)": lambda _: Xrpo(examples=0)}
"""What runs beside the other controls (`studies.prompts.page`)."""
WIDTHS: dict[str, Callable[[PromptWorld], Control]] = {
    "uniform": lambda _: Uniform(),
    "xrpo": lambda _: Xrpo(examples=0),
    "xrpo without bonus": lambda _: Xrpo(examples=0, explore=0.0),
    "xrpo, base 6": lambda _: Xrpo(examples=0, base=6),
    "oracle square root": OracleWidths,
}


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Widths (XRPO)",
        "One step over 200 prompts that stand still, 8 rollouts each on average: error of group means.",
        table(["widths", "squared error", "mixed groups"], [
            (n, columns(lambda s, m=m: mean_error(m(w := bandit(s)), w)[:2])) for n, m in WIDTHS.items()
        ], 4),
    ]  # fmt: skip
