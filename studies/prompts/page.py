"""`python -m studies.prompts.page [FOLDER]`: measure all controls on simulated prompts and write allocation.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rolltree.compare.stats import t_interval
from rolltree.control.history import Beliefs
from rolltree.control.plan import Control, Uniform
from rolltree.control.pool import Shuffled
from rolltree_papers.dars import Dars
from rolltree_papers.dots import Dots
from rolltree_papers.gdro import PromptGdro, RolloutGdro
from rolltree_papers.seele import Seele
from rolltree_papers.v05 import V05
from rolltree_papers.vade import Vade
from rolltree_papers.xrpo import Xrpo
from studies.prompts import checks, guided
from studies.prompts.oracles import FixedHint, OraclePick, OracleWidths
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
    state, history = control.start(), checks.History()
    spent = effective = steps = 0
    while spent < budget:
        steps += 1
        (log,) = run(control, world, 1, prompts=32, state=state, history=history, first=steps)
        spent, effective = spent + log.rollouts, effective + log.effective
    gained = world.rates - before
    return 1000 * effective / spent, float(gained.mean()), float(gained[hard].mean()), float(steps)


TOGETHER: dict[str, Callable[[PromptWorld], Control]] = {
    "uniform (in order)": lambda _: Uniform(),
    "shuffled": lambda _: Shuffled(POOL),
    "dars even": lambda _: Dars("even"),
    "dars hard": lambda _: Dars("hard"),
    "vade": lambda _: Vade(POOL),
    "vade, posterior mean": lambda _: Vade(POOL, thompson=False),
    "xrpo (no examples)": lambda _: Xrpo(examples=0),
    "prompt-gdro": lambda _: PromptGdro(),
    "rollout-gdro": lambda _: RolloutGdro(),
    "rollout-gdro, root": lambda _: RolloutGdro(rule="root"),
    "dots": lambda _: Dots(POOL, references=64),
    "v05": lambda _: V05(),
    "oracle choice": OraclePick,
    "oracle widths": OracleWidths,
}


def coverage(visit: float, idle: float, seed: int, steps: int = 60) -> tuple[float, float]:
    """Share of true pass rates inside the posterior's central 90 %, and the mean absolute error of its mean."""
    world = PromptWorld(POOL, seed=seed, mean=0.0, spread=2.0, gain=0.1, drift=0.05)
    control = Shuffled(POOL)
    state, history, beliefs = control.start(), checks.History(), Beliefs(visit, idle)
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
            [(name, _columns(lambda s, m=make: together(s, m))) for name, make in TOGETHER.items()],
        ),
        "## Choosing prompts (VADE)",
        "Share of groups with variance, after the first sweep, of 400 prompts with logits N(−0.5, 3²).",
        table(["choice", "share with variance"], [(n, _columns(lambda s, m=m: (_share(m, s),))) for n, m in _picks()]),
        "Calibration of the posterior under drift: share of true pass rates inside its central 90 %, and the error of "
        "its mean.",
        table(
            ["kept on a visit, per step", "coverage of 90 %", "error of the mean"],
            [(f"{v:g}, {i:g}", _columns(lambda s, v=v, i=i: coverage(v, i, s)))
             for v, i in ((0.9, 0.995), (0.5, 0.98), (1.0, 1.0))],
        ),
        "## Predicting from references (DOTS)",
        "Correlation with the true pass rates of 300 prompts whose difficulty follows from their words; 64 references "
        "of 8 rollouts every other step against each prompt's last seen rate.",
        table(["", "correlation"], [
            ("attention over references", _columns(lambda s: checks.predicted(s)[:1])),
            ("last seen rate", _columns(lambda s: checks.predicted(s)[1:2])),
        ]),
        "## Widths (XRPO, GDRO, DARS)",
        "One step over 200 prompts that stand still, 8 rollouts each on average: error of group means.",
        table(["widths", "squared error", "mixed groups"], [
            (n, _columns(lambda s, m=m: checks.mean_error(m(w := checks.bandit(s)), w)[:2])) for n, m in _widths()
        ], 4),
        "Variance of group means, mean p(1−p)/n, in the last 30 of 90 steps of 64 prompts.",
        table(["widths", "variance"], [
            (n, _columns(lambda s, m=m: checks.group_noise(m(w := checks.bandit(s)), w)[:1])) for n, m in _games()
        ], 4),
        "Share of Σ|A| on prompts solved less than a quarter of the time, at equal rollouts, first round of 8.",
        table(["schedule", "share", "rollouts per prompt", "uniform with as many"], [
            (schedule, _columns(lambda s, k=schedule: _mass(k, s))) for schedule in ("even", "hard")
        ]),
        "Pass rate of 3 of 300 prompts that start at 0.08 (27 start at 0.27, 270 at 0.73), after 100 steps; weights as "
        "they are, and divided by their mean over the step, so that nothing is learned at a higher rate.",
        table(["weights", "rarest, hardest bin", "at a mean weight of 1"], [
            (n, _columns(lambda s, m=m: [_worst(m, s), _worst(checks.MeanOne(m), s)])) for n, m in _weights()
        ]),
        "## Priors (V0.5)",
        "Squared error of the baseline over 400 prompts, logits N(0, 1.5²).",
        table(["prior", "shrunk, sequential", "group mean, as many rollouts", "shrunk, 4 rollouts", "rollouts"], [
            (prior, _columns(lambda s, k=prior: _prior(k, s))) for prior in checks.PRIORS
        ], 4),
        "## Hints (SEELE, Guide)",
        "a(1−a) of 60 prompts, logits N(−4, 2²) and +8 for the whole answer, over the rollouts of a visit.",
        table(["hints", "first visit", "third visit"], [
            (n, _columns(lambda s, m=m: [_toss(m, s, k) for k in (1, 3)])) for n, m in _hints()
        ]),
        f"One prompt of {guided.ANSWERS} answers, pass rate {guided.START:g}, {guided.GUIDED:g} with the hint, after "
        "400 steps of 16 rollouts (8 where nothing is guided). Over 20 seeds. All parameters of the "
        "bare policy are shared with the hinted one.",
        table(["method", "without the hint", "with it"], [
            (m, _columns(lambda s, m=m: guided.train(m, s)[:2], 20)) for m in ("grpo", "guide", "always", "in context")
        ]),
        "## Selection (GRPO-RoC)",
        "16 of 32 rollouts kept, penalties Beta(2, 3).",
        table(["pass rate", "penalty kept", "of all right ones", "share right kept", "of all"], [
            (f"{rate:g}", _columns(lambda s, r=rate: checks.kept_flaws(s, r)[:4])) for rate in (0.05, 0.4, 0.9)
        ]),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page into a folder."""
    folder = Path(arguments[0] if arguments else "docs/measured")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "allocation.md").write_text(page(), encoding="utf-8")
    print(f"wrote {folder / 'allocation.md'}")
    return 0


def _columns(measure: Callable[[int], Sequence[float]], seeds: int = SEEDS) -> list[list[float]]:
    return [list(column) for column in zip(*(measure(seed) for seed in range(seeds)), strict=True)]


def _cell(values: Sequence[float], digits: int) -> str:
    found = t_interval(list(values))
    return f"{found.estimate:.{digits}f} ± {(found.high - found.low) / 2:.{digits}f}"


def _share(make: Callable[[PromptWorld], Control], seed: int) -> float:
    world = PromptWorld(400, seed=seed)
    return checks.effective_share(make(world), world)


def _picks() -> list[tuple[str, Callable[[PromptWorld], Control]]]:
    return [
        ("uniform", lambda _: Shuffled(400)), ("vade", lambda _: Vade(400)),
        ("vade without forgetting", lambda _: Vade(400, visit=1.0, idle=1.0)),
        ("vade, posterior mean", lambda _: Vade(400, thompson=False)), ("oracle", OraclePick),
    ]  # fmt: skip


def _widths() -> list[tuple[str, Callable[[PromptWorld], Control]]]:
    return [
        ("uniform", lambda _: Uniform()), ("xrpo", lambda _: Xrpo(examples=0)),
        ("xrpo without bonus", lambda _: Xrpo(examples=0, explore=0.0)),
        ("xrpo, base 6", lambda _: Xrpo(examples=0, base=6)), ("oracle square root", OracleWidths),
    ]  # fmt: skip


def _games() -> list[tuple[str, Callable[[PromptWorld], Control]]]:
    return [
        ("uniform", lambda _: Uniform()), ("rollout-gdro", lambda _: RolloutGdro()),
        ("rollout-gdro, not drawn", lambda _: RolloutGdro(draw=False)),
        ("rollout-gdro, released code", lambda _: RolloutGdro(reading="code")),
        ("square root of measured variances", lambda _: RolloutGdro(rule="root")),
        ("oracle square root", OracleWidths),
    ]  # fmt: skip


def _weights() -> list[tuple[str, Control]]:
    return [
        ("uniform", Uniform()), ("prompt-gdro", PromptGdro()), ("prompt-gdro, not debiased", PromptGdro(debias=False)),
        ("prompt-gdro, released code", PromptGdro(reading="code")),
    ]  # fmt: skip


def _hints() -> list[tuple[str, Control]]:
    return [
        ("none", Uniform()), ("half of the answer", FixedHint(0.5)), ("seele", Seele()),
        ("seele, nothing stored", Seele(stored=False)),
    ]  # fmt: skip


def _mass(schedule: str, seed: int) -> tuple[float, float, float]:
    share, used = checks.hard_share("hard" if schedule == "hard" else "even", seed)
    return share, used, checks.hard_share(None, seed, round(used))[0]


def _worst(control: Control, seed: int) -> float:
    return checks.worst_bin(control, seed)[0]


def _prior(kind: str, seed: int) -> tuple[float, float, float, float]:
    ours, alone, used, _ = checks.baseline_error(kind, seed)
    rates = PromptWorld(400, seed=seed, mean=0.0, spread=1.5).rates
    return ours, float((rates * (1 - rates)).mean() / used), alone, used


def _toss(control: Control, seed: int, visits: int) -> float:
    values = np.array([a for r in checks.hint_rounds(control, seed, visits)[0] for a in r])
    return float((values * (1 - values)).mean())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
