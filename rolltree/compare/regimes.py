"""Regimes: named conditions in which mechanisms of a kind can matter, as data. `docs/howto/regimes.md` describes them.

`rolltree compare --regime NAME` compares in them, a card may claim in one (`task="regime:NAME"`), and tables are made
in them.

Rate and updates of a regime are calibrated with `python -m studies.calibrate NAME`, on seeds of its own, for the plain
baseline, and are then the same for every arm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolltree.compare.runner import Conditions
from rolltree.compare.trace import LabError
from rolltree.errors import unknown

PREFIX = "regime:"
"""Before a regime's name where a card names a task."""
CALIBRATED = Path(__file__).parent / "calibrated"
"""One file a regime: what its calibration found."""
CALIBRATION_SEEDS = (1000, 1001)
"""Never used by a screen (from 0 on) or a confirmation (from 2000 on)."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Conditions that all arms of a table share."""

    name: str
    about: str
    """What is hard in it, and for which kind of mechanism."""
    task: str
    budget: int
    """Decoded tokens of a run."""
    level: int | None = None
    settings: tuple[str, ...] = ()
    """Knobs of every arm, as of `rolltree compare --set`."""
    model: str = "nano"
    metric: str = "pass@1"
    """What verdicts are about."""
    seconds: float = 60.0
    """Processor seconds of a run of the baseline, for plans; finished runs go before it."""
    rates: tuple[float, ...] = (6.25e-5, 1.25e-4, 2.5e-4, 5e-4)
    """Learning rates that are tried."""
    updates: tuple[int, ...] = (1, 4)
    """Updates of a step that are tried."""
    rate_of: str = ""
    """Another regime whose calibration holds here too: the same policy and nearly the same task."""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of a checkout that it is made of: a policy, a task, data."""
        words = (self.model, self.task.partition("?")[0].partition(":")[0])
        return tuple(word for word in words if word.startswith("studies/"))

    def conditions(self, budget: int | None = None, end_items: int = 256) -> Conditions:
        """As a comparison takes them: evaluations of 64 items, the first and the last of 256, 4 samples each."""
        return Conditions(
            self.task, float(budget or self.budget), self.level, self.model, eval_samples=4, end_items=end_items
        )


def _stale(versions: int, budget: int, seconds: float) -> Regime:
    about = f"rollouts are trained {versions} versions after they were begun: for corrections of stale data"
    return Regime(f"stale{versions}", about, "arithmetic", budget, settings=(f"train.staleness={versions}",),
                  seconds=seconds)  # fmt: skip


REGIMES: Mapping[str, Regime] = {
    r.name: r
    for r in (
        Regime("fresh", "every batch is trained at once: the plain case, for credits, objectives and filters",
               "arithmetic", 120_000, seconds=45),
        _stale(2, 125_000, 47), _stale(8, 145_000, 55), _stale(32, 220_000, 80),
        Regime("long", "up to fifteen turns and one outcome at the end, which the first policy reaches in 23 %: for "
               "step credits and trees", "grid", 40_000, level=3, seconds=130),
        Regime("planned", "the grid of long behind a plan in words: subgoals in order, of which each reply names the "
               "one in force; for credit by level", "planned:grid", 120_000, level=3, model="studies/policies/planned",
               seconds=110),
        Regime("spoken", "the grid of long in turns that say whether they switch the subgoal, to which, and the move; "
               "for credit by span", "spoken:grid", 300_000, level=3, model="studies/policies/spoken", seconds=170),
        Regime("mixed", "256 items of all levels, visited again and again, judged on the third that the first policy "
               "solves least: for controls that remember", "mixed:arithmetic", 150_000, settings=("train.items=256",),
               metric="pass@1 hard", seconds=70),
        Regime("noisy", "a tool that fails in three of ten calls: for repairs, filters and trees over turns",
               "calculator?fail_rate=0.3", 80_000, level=3, seconds=90),
        Regime("noisier", "the same with half of the calls failing", "calculator?fail_rate=0.5", 80_000, level=3,
               seconds=95),
        Regime("records", "JSON records against a schema, right only as a whole: for rewards of structure and of "
               "several levels", "records", 150_000, seconds=45),
        Regime("sql", "questions answered by queries that can be tried first: for agents that explore", "sql", 150_000,
               level=3, seconds=60),
        Regime("real", "SmolLM2-135M-Instruct asked short sums in its chat template: whether what small policies show "
               "is seen on a language model", "studies/real.jsonl?reward=number&max_tokens=24", 30_000,
               settings=("train.prompts=8",), model="smollm2-135m", seconds=700, rates=(1e-6, 3e-6, 1e-5),
               updates=(1,)),
        Regime("tails", "answers that begin with an effort which the policy picks, with a heavy tail of lengths: for "
               "budgets of length and schedules; simulated time is a cost", "studies/effort.py:Effort", 150_000,
               model="studies/policies/tails", seconds=80),
        Regime("asked", "the same sums, each asked at an effort that the policy was trained to obey: for dials "
               "of effort", "studies/effort.py:Effort?asked=yes", 150_000, model="studies/policies/tails", seconds=80,
               rate_of="tails"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A regime's rate and updates."""

    lr: float
    updates: int

    def settings(self, factor: float = 1.0) -> tuple[str, ...]:
        """As knobs of every arm; `factor` makes the rate hotter than calibrated."""
        return (f"optim.lr={self.lr * factor:g}", f"optim.minibatches={self.updates}")


def regime(name: str) -> Regime:
    """A regime by name."""
    if name not in REGIMES:
        raise unknown("regime", name, REGIMES, "docs/howto/regimes.md describes them")
    return REGIMES[name]


def knobs_of(name: str, factor: float = 1.0) -> tuple[str, ...]:
    """What every arm in a regime is trained with: its own knobs, then the calibrated rate and updates."""
    return (*regime(name).settings, *calibrated(name).settings(factor))


def is_calibrated(name: str, folder: Path = CALIBRATED) -> bool:
    """Whether rate and updates of a regime are known."""
    return (folder / f"{regime(name).rate_of or name}.json").is_file()


def calibrated(name: str, folder: Path = CALIBRATED) -> Calibrated:
    """What the regime's calibration found; without one it is refused, because any rate would be a guess."""
    tried = regime(name).rate_of or name
    path = folder / f"{tried}.json"
    if not is_calibrated(name, folder):
        raise LabError(f"the regime {name!r} is not calibrated; run `python -m studies.calibrate {tried}` first")
    raw = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    return Calibrated(float(raw["chosen"]["lr"]), int(raw["chosen"]["updates"]))
