"""`python -m studies.prompts.page [FOLDER]`: measure all controls on simulated prompts and write allocation.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rolltree.compare.stats import t_interval
from rolltree.control.history import Beliefs, History
from rolltree.control.plan import Control, Uniform
from rolltree.control.pool import Shuffled
from studies.papers import studies_with
from studies.prompts.oracles import OraclePick, OracleWidths
from studies.prompts.world import PromptWorld, run

SEEDS = 5
POOL = 300


def table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[Sequence[float]]]], digits: int = 3) -> str:
    """Rows of (name, values over seeds per column) as mean ± half a 95 % t interval."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for name, columns in rows:
        lines.append("| " + " | ".join([name, *(_cell(values, digits) for values in columns)]) + " |")
    return "\n".join(lines)


def together(seed: int, make: Callable[[PromptWorld], Control], budget: int = 12_000) -> tuple[float, ...]:
    """One control in the common world until it has drawn the budget's rollouts.

    Returns: groups with variance per 1,000 rollouts, gain of the mean pass rate and of the hardest third's, steps.
    """
    world = PromptWorld(POOL, seed=seed, mean=-1.0, spread=2.5, gain=0.1, drift=0.02)
    before, hard = world.rates, np.argsort(world.logits)[: POOL // 3]
    control = make(world)
    state, history = control.start(), History()
    spent = effective = steps = 0
    while spent < budget:
        steps += 1
        (log,) = run(control, world, 1, prompts=32, state=state, history=history, first=steps)
        spent, effective = spent + log.rollouts, effective + log.effective
    gained = world.rates - before
    return 1000 * effective / spent, float(gained.mean()), float(gained[hard].mean()), float(steps)


def controls() -> dict[str, Callable[[PromptWorld], Control]]:
    """Every control of the common world: the plain ones, `CONTROLS` of the papers' studies, the oracles."""
    plain: dict[str, Callable[[PromptWorld], Control]] = {
        "uniform (in order)": lambda _: Uniform(),
        "shuffled": lambda _: Shuffled(POOL),
    }
    for study in studies_with("CONTROLS"):
        plain |= study.CONTROLS
    return plain | {"oracle choice": OraclePick, "oracle widths": OracleWidths}


def coverage(visit: float, idle: float, seed: int, steps: int = 60) -> tuple[float, float]:
    """Share of true pass rates inside the posterior's central 90 %, and the mean absolute error of its mean."""
    world = PromptWorld(POOL, seed=seed, mean=0.0, spread=2.0, gain=0.1, drift=0.05)
    control = Shuffled(POOL)
    state, history, beliefs = control.start(), History(), Beliefs(visit, idle)
    rng = np.random.default_rng([29, seed])
    inside: list[float] = []
    error: list[float] = []
    for number in range(1, steps + 1):
        beliefs.step += 1
        (log,) = run(control, world, 1, prompts=32, state=state, history=history, first=number)
        for d in log.delivered:
            beliefs.observe(d.order.prompt.uid, d.solved, d.n)
        if number % 10 == 0:
            a, b = np.array([beliefs.at(f"p{i}") for i in range(POOL)]).T
            low, high = np.quantile(rng.beta(a, b, (400, POOL)), [0.05, 0.95], axis=0)
            inside.append(float(((low <= world.rates) & (world.rates <= high)).mean()))
            error.append(float(np.abs(a / (a + b) - world.rates).mean()))
    return float(np.mean(inside)), float(np.mean(error))


def page() -> str:
    """All measurements as one page."""
    parts = [
        "# Allocation on simulated prompts",
        "Regenerate with `python -m studies.prompts.page docs/measured`. Prompts are logits of success with "
        "known pass rates; controls run the very plans that training runs. Means over "
        f"{SEEDS} seeds with half of a 95 % t interval. Nothing here trains a language model: these are claims about "
        "where rollouts go, and whether the statistics behind them hold.",
        "## All controls, one budget",
        f"{POOL} prompts, logits N(−1, 2.5²), drift 0.02 a step; 32 prompts of 8 rollouts a step where a control does "
        "not say otherwise, until 12,000 rollouts are drawn (rollouts that only measure count). Training raises a "
        "prompt's logit by its group's Σ|A|; prompts do not help one another, so what is gained is what was worked on. "
        "The texts of these prompts say nothing about their difficulty, which is all that DOTS has to go by.",
        table(
            ["control", "mixed groups per 1,000 rollouts", "gain of pass rate", "of the hardest third", "steps"],
            [(name, columns(lambda s, m=make: together(s, m))) for name, make in controls().items()],
        ),
        "## Beliefs",
        "Calibration of the posterior under drift: share of true pass rates inside its central 90 %, and the error of "
        "its mean.",
        table(
            ["kept on a visit, per step", "coverage of 90 %", "error of the mean"],
            [(f"{v:g}, {i:g}", columns(lambda s, v=v, i=i: coverage(v, i, s)))
             for v, i in ((0.9, 0.995), (0.5, 0.98), (1.0, 1.0))],
        ),
        *(line for study in studies_with("allocation") for line in study.allocation()),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page into a folder."""
    folder = Path(arguments[0] if arguments else "docs/measured")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "allocation.md").write_text(page(), encoding="utf-8")
    print(f"wrote {folder / 'allocation.md'}")
    return 0


def columns(measure: Callable[[int], Sequence[float]], seeds: int = SEEDS) -> list[list[float]]:
    """What is measured over seeds, one list a number."""
    return [list(column) for column in zip(*(measure(seed) for seed in range(seeds)), strict=True)]


def _cell(values: Sequence[float], digits: int) -> str:
    found = t_interval(list(values))
    return f"{found.estimate:.{digits}f} ± {(found.high - found.low) / 2:.{digits}f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
