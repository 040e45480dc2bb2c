"""Error rates of the whole procedure, simulated: `python -m studies.power` writes `docs/measured/error-rates.md`.

A family of methods is screened on few seeds against one shared baseline; those that look best are confirmed on fresh
seeds, with looks that end a confirmation early. The numbers of seeds, looks and candidates are those of
`studies.confirm`. Beside it stands what `rolltree evidence --confirm` does, without looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Literal, get_args

import numpy as np

from rolltree.compare.stats import Asked, Corrected, corrected
from rolltree.compare.stats.paired import Floats
from rolltree.compare.trace import write_json
from studies.command import run_study
from studies.lab.entry import load_entries
from studies.lab.entry_family import CANDIDATES, HANDED_ON
from studies.lab.evidence import FRESH_SEEDS
from studies.lab.places import EVIDENCE
from studies.lab.sequential import sequential_holm

FRESH_RUNS, FRESH_CHECKS = FRESH_SEEDS["training"], FRESH_SEEDS["simulated"]
LOOKS = (8, 14, 20)
"""Fresh seeds at which a confirmation may end."""
SCREEN = 6
"""Seeds of the screen."""
CHECK_SEEDS = 5
"""Seeds of most checks, which are no training."""
DROP = HANDED_ON
"""One-sided p above which a screened method is dropped."""
ALPHA = 0.025

Noise = Literal["normal", "heavy", "collapses"]
Procedure = Literal["study", "entries", "checks"]
"""A screen and its confirmation, or all entries of evidence about training, or about checks, and their fresh seeds."""


@dataclass(frozen=True)
class PowerSettings:
    """What is simulated."""

    trials: int = 1000
    """Simulated studies of a row."""
    methods: int = 28
    """Methods that a study screens."""
    entries: int = field(default_factory=lambda: _asked("training"))
    """Entries of evidence about training, which are one family; as many as there are."""
    checks: int = field(default_factory=lambda: _asked("checks"))
    """Entries of evidence about checks, which are another; as many as there are."""
    spread: float = 3.7
    """Standard deviation of a paired difference, in points."""
    effect: float = 4.0
    """What a true effect is, in points."""
    true: int = 4
    """How many methods have it."""
    seed: int = 0
    """Where chance starts: the same seed gives the same result."""
    out: Path = Path("docs/measured")
    """Folder that is written to."""


def _asked(what: Literal["training", "checks"]) -> int:
    return sum((entry.kind == "training") == (what == "training") for entry in load_entries(EVIDENCE))


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """What came out of one kind of noise."""

    noise: Noise
    effect: float
    true: int
    false_holds: float
    """Share of studies with any wrong *holds*."""
    power: float
    """Share of the methods with an effect that end with *holds*."""
    seeds: float
    """Fresh seeds used per confirmed method, on average."""
    procedure: Procedure = "study"


def study(rng: np.random.Generator, truth: Sequence[float], spread: float, noise: Noise) -> tuple[list[bool], float]:
    """One whole study: which methods end with *holds*, and fresh seeds per candidate."""
    screened = _differences(rng, truth, SCREEN, spread, noise)
    found = corrected([Asked(tuple(row), pool="points") for row in screened])
    ranked = sorted(range(len(truth)), key=lambda i: found[i].p)
    chosen = [i for i in ranked if found[i].p <= DROP][:CANDIDATES]
    out = [False] * len(truth)
    if not chosen:
        return out, 0.0
    fresh = _differences(rng, [truth[i] for i in chosen], LOOKS[-1], spread, noise)
    holds, used = [False] * len(chosen), [LOOKS[-1]] * len(chosen)
    for look, n in enumerate(LOOKS):
        p = [one.p for one in corrected([Asked(tuple(row[:n]), pool="points") for row in fresh])]
        now = sequential_holm(p, holds, look, LOOKS, ALPHA)
        used = [n if new and not old else u for new, old, u in zip(now, holds, used, strict=True)]
        holds = now
    for i, held in zip(chosen, holds, strict=True):
        out[i] = held
    return out, float(np.mean(used))


def entries(rng: np.random.Generator, truth: Sequence[float], spread: float, noise: Noise) -> tuple[list[bool], float]:
    """All entries about training: which are handed on, and hold on fresh seeds in a family of their own."""
    return _handed_on(
        truth, (SCREEN, FRESH_RUNS), lambda truth, n: _differences(rng, truth, n, spread, noise), shared=True
    )


def checks(rng: np.random.Generator, truth: Sequence[float], spread: float, noise: Noise) -> tuple[list[bool], float]:
    """All entries about checks: each has a baseline and a unit of its own, so that no variance helps another."""

    def drawn(truth: Sequence[float], n: int) -> Floats:
        before, after = (_draw(rng, (len(truth), n), spread / 2**0.5, noise) for _ in range(2))
        return after - before + np.asarray(truth)[:, None]

    return _handed_on(truth, (CHECK_SEEDS, FRESH_CHECKS), drawn, shared=False)


def _handed_on(
    truth: Sequence[float], seeds: tuple[int, int], drawn: Callable[[Sequence[float], int], Floats], shared: bool
) -> tuple[list[bool], float]:
    def asked(rows: Floats) -> list[Corrected]:
        return corrected([Asked(tuple(row), pool="points" if shared else str(i)) for i, row in enumerate(rows)])

    screened = asked(drawn(truth, seeds[0]))
    ranked = sorted(range(len(truth)), key=lambda i: screened[i].p)
    again = [i for i in ranked if screened[i].p <= DROP][:CANDIDATES]
    out = [False] * len(truth)
    for i, one in zip(again, asked(drawn([truth[i] for i in again], seeds[1])), strict=True):
        out[i] = one.effect.low > 0
    return out, float(seeds[1] if again else 0)


def rates(
    settings: PowerSettings, noise: Noise, true: int, effect: float, procedure: Procedure = "study"
) -> ErrorRates:  # fmt: skip
    """Many studies under one kind of noise. The methods without an effect have none at all, the hardest case."""
    rng = np.random.default_rng([settings.seed, true, len(noise)])
    run = _PROCEDURES[procedure]
    truth = [effect] * true + [0.0] * (_of(settings, procedure) - true)
    wrong, right, seeds = 0, 0, list[float]()
    for _ in range(settings.trials):
        holds, used = run(rng, truth, settings.spread, noise)
        wrong += any(holds[true:])
        right += sum(holds[:true])
        seeds.append(used)
    found = right / (true * settings.trials) if true else float("nan")
    return ErrorRates(noise, effect, true, wrong / settings.trials, found, float(np.mean(seeds)), procedure)


def _differences(rng: np.random.Generator, truth: Sequence[float], n: int, spread: float, noise: Noise) -> Floats:
    """Rows of paired differences, all against the same baseline runs."""
    draw = _draw(rng, (len(truth) + 1, n), spread / 2**0.5, noise)
    return draw[1:] - draw[0] + np.asarray(truth)[:, None]


def _draw(rng: np.random.Generator, size: tuple[int, int], spread: float, noise: Noise) -> Floats:
    if noise == "heavy":
        return spread * rng.standard_t(4, size) / 2**0.5
    out = spread * rng.standard_normal(size)
    if noise == "collapses":
        out -= 30.0 * (rng.random(size) < 0.02)
    return out


def page(settings: PowerSettings, found: Sequence[ErrorRates]) -> str:
    """The numbers as a page."""
    rows = "\n".join(
        f"| {_NAMES[r.procedure]} | {r.noise} | {r.true} of {_of(settings, r.procedure)} | {r.effect:g} | "
        f"{100 * r.false_holds:.1f} % | {'–' if r.true == 0 else f'{100 * r.power:.0f} %'} | {r.seeds:.1f} |"
        for r in found
    )
    looks = ", ".join(map(str, LOOKS))
    lead = (
        f"Written by `python -m studies.power`: {settings.trials} simulated studies a row. Each screens "
        f"{settings.methods} methods on {SCREEN} seeds against one shared baseline, hands on at most {CANDIDATES} with "
        f"p ≤ {DROP}, and confirms them on up to {LOOKS[-1]} fresh seeds with looks at {looks}, by Holm's procedure "
        f"over the candidates at a one-sided level of {100 * ALPHA:g} %, with moderated variances. A paired difference "
        f"has a standard deviation of {settings.spread:g} points. Methods without an effect have none at all. Noise is "
        "normal, heavy-tailed (t with 4 degrees of freedom), or normal with one run in fifty falling by 30 points: "
        "such collapses make the spread twice as large, and what is found with them needs an effect as much larger. "
        f"Entries of evidence: {settings.entries} about training are screened on {SCREEN} seeds and handed on by the "
        f"same rule, to {FRESH_RUNS} fresh seeds at once, on which they are one family; {settings.checks} about checks "
        f"likewise, on {CHECK_SEEDS} seeds and on {FRESH_CHECKS} fresh ones, each with a baseline, a unit and a spread "
        f"of its own, so that {settings.effect:g} points stand for {settings.effect / settings.spread:.1f} times the "
        "standard deviation of its differences. Nothing has a second try: a question that is "
        "asked until it answers has other rates, which is why all that was asked before is counted."
    )
    return (
        f"# Error rates of a whole study\n\n{fill(lead, 120)}\n\n"
        "| procedure | noise | methods with an effect | points | studies with a false *holds* | effects found | "
        f"fresh seeds a candidate |\n|---|---|---|---|---|---|---|\n{rows}\n"
    )


_PROCEDURES = {"study": study, "entries": entries, "checks": checks}
_NAMES: Mapping[Procedure, str] = {
    "study": "screen and confirmation", "entries": "entries about training", "checks": "entries about checks"
}  # fmt: skip


def _of(settings: PowerSettings, procedure: Procedure) -> int:
    return {"study": settings.methods, "entries": settings.entries, "checks": settings.checks}[procedure]


def main(settings: PowerSettings) -> list[ErrorRates]:
    """Simulate and write."""
    kinds: tuple[Noise, ...] = get_args(Noise)
    cases = list[tuple[Noise, int, float, Procedure]]()
    for true, effect in ((0, 0.0), (settings.true, settings.effect)):
        cases.extend((noise, true, effect, "study") for noise in kinds)
    cases.extend(("normal", settings.true, effect, "study") for effect in (2.0, 3.0, 6.0))
    cases.append(("collapses", settings.true, 6.0, "study"))
    cases.extend((noise, 0, 0.0, "entries") for noise in kinds)
    cases.extend(("normal", settings.true, effect, "entries") for effect in (3.0, 4.0, 6.0))
    cases.extend((noise, 0, 0.0, "checks") for noise in kinds)
    cases.extend(("normal", settings.true, effect, "checks") for effect in (3.0, 4.0, 6.0))
    found = [rates(settings, *case) for case in cases]
    settings.out.mkdir(parents=True, exist_ok=True)
    (settings.out / "error-rates.md").write_text(page(settings, found), encoding="utf-8")
    write_json(settings.out / "error-rates.json", [
        {k: None if v != v else v for k, v in asdict(r).items()} for r in found  # noqa: PLR0124
    ])  # fmt: skip
    for r in found:
        print(r, flush=True)
    return found


if __name__ == "__main__":
    raise SystemExit(run_study("power", PowerSettings, main, __doc__))
