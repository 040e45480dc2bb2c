"""VADE on simulated prompts, held against uniform choice."""

from __future__ import annotations

from collections.abc import Callable

from rolltree.control.plan import Control
from rolltree.control.pool import Shuffled
from rolltree_papers.vade import Vade
from studies.lab.claim import Measured
from studies.prompts.checks import chosen, favoured, varied
from studies.prompts.oracles import OraclePick
from studies.prompts.page import POOL, columns, table
from studies.prompts.world import PromptWorld, run


def effective_share(control: Control, world: PromptWorld, steps: int = 50, skip: int = 10) -> float:
    """Share of groups with variance, after the first sweep of the pool."""
    return varied(run(control, world, steps)[skip:])


def vade(seed: int) -> Measured:
    """Share of groups with variance: VADE against uniform choice from the same pool of 400."""
    ours, even = chosen(Vade(400), seed), chosen(Shuffled(400), seed)
    return Measured(varied(ours), varied(even), acted=favoured(ours, even))


CONTROLS: dict[str, Callable[[PromptWorld], Control]] = {
    "vade": lambda _: Vade(POOL),
    "vade, posterior mean": lambda _: Vade(POOL, thompson=False),
}
"""What runs beside the other controls (`studies.prompts.page`)."""
PICKS: dict[str, Callable[[PromptWorld], Control]] = {
    "uniform": lambda _: Shuffled(400),
    "vade": lambda _: Vade(400),
    "vade without forgetting": lambda _: Vade(400, visit=1.0, idle=1.0),
    "vade, posterior mean": lambda _: Vade(400, thompson=False),
    "oracle": OraclePick,
}


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Choosing prompts (VADE)",
        "Share of groups with variance, after the first sweep, of 400 prompts with logits N(−0.5, 3²).",
        table(["choice", "share with variance"], [
            (n, columns(lambda s, m=m: [effective_share(m(w := PromptWorld(400, seed=s)), w)]))
            for n, m in PICKS.items()
        ]),
    ]  # fmt: skip
