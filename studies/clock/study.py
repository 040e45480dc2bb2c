"""The three studies: sizes, regimes and environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from studies.clock.arms import AGENTS, ARMS, LARGE, LARGEST, ScheduleArm
from studies.clock.measure import ClockOutcome, run
from studies.clock.work import Constant, Distribution, LogNormal, Pareto, Workload

PER_ENGINE = 4
"""Groups of eight per engine in a batch: 32 rollouts, as 256 on eight devices."""


@dataclass(frozen=True, slots=True)
class Size:
    """A number of engines, and how long and how often it is run."""

    engines: int
    updates: int
    seeds: int
    arms: Sequence[str] = tuple(ARMS)


SIZES = (Size(1, 12, 2), Size(8, 12, 1), Size(64, 8, 1, LARGE), Size(1024, 3, 1, LARGEST))
DISTRIBUTIONS: tuple[Distribution, ...] = (LogNormal(), Pareto())
REGIMES: tuple[Distribution, ...] = (
    Constant(), LogNormal(sigma=0.5, name="log-normal, σ 0.5"), LogNormal(name="log-normal, σ 1"),
    Pareto(name="Pareto, α 1.5"), LogNormal(8000, 0.6, "log-normal near the cap"),
)  # fmt: skip
BUSY = (2, 4, 8)
"""Groups per engine in a batch, over the regimes."""


@dataclass(frozen=True, slots=True)
class ClockRow:
    """One simulated run."""

    study: str
    arm: str
    distribution: str
    engines: int
    per_engine: int
    seed: int
    outcome: ClockOutcome

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def sizes(say: Callable[[str], None], chosen: Sequence[Size] = SIZES) -> list[ClockRow]:
    """Every arm at every size; Pareto lengths up to 8 engines."""
    rows: list[ClockRow] = []
    for size in chosen:
        for distribution in DISTRIBUTIONS[: 1 if size.engines > 8 else None]:
            for name in size.arms:
                rows += [
                    _row(
                        "sizes",
                        name,
                        ARMS[name],
                        Workload(distribution, seed=seed),
                        size.engines,
                        PER_ENGINE,
                        size.updates,
                    )
                    for seed in range(size.seeds)
                ]
        say(f"{size.engines} engines: {len(size.arms)} arms")
    return rows


def regimes(
    say: Callable[[str], None], distributions: Sequence[Distribution] = REGIMES, busy: Sequence[int] = BUSY
) -> list[ClockRow]:
    """Eight engines, lengths of several distributions, from few rollouts per engine to many."""
    rows: list[ClockRow] = []
    for distribution in distributions:
        for per in busy:
            rows += [
                _row("regimes", name, ARMS[name], Workload(distribution), 8, per, 12)
                for name in ("sync", "april", "areal")
            ]
        say(f"lengths: {distribution.name}")
    return rows


def agents(say: Callable[[str], None], waits: Sequence[float] = (5.0, 20.0)) -> list[ClockRow]:
    """Eight engines, eight turns, an environment that takes its time."""
    rows: list[ClockRow] = []
    for wait in waits:
        work = Workload(LogNormal(sigma=0.7, name=f"answers of {wait:g} s"), turns=8, wait=wait)
        rows += [_row("agents", name, arm, work, 8, PER_ENGINE, 12) for name, arm in AGENTS.items()]
        say(f"environment: {wait:g} s a turn")
    return rows


def gains(rows: Sequence[ClockRow], study: str, over: str) -> Mapping[tuple[str, str, int, int], float]:
    """Speed over another arm's in the same setting and seed, averaged: by arm, distribution, engines and groups per
    engine."""
    speed = {
        (r.arm, r.distribution, r.engines, r.per_engine, r.seed): r.outcome.tokens_per_second
        for r in rows
        if r.study == study
    }
    found: dict[tuple[str, str, int, int], list[float]] = {}
    for (arm, *rest, seed), value in speed.items():
        distribution, engines, per = str(rest[0]), int(rest[1]), int(rest[2])
        found.setdefault((arm, distribution, engines, per), []).append(
            value / speed[over, distribution, engines, per, seed]
        )
    return {key: sum(values) / len(values) for key, values in found.items()}


def _row(study: str, name: str, arm: ScheduleArm, work: Workload, engines: int, per: int, updates: int) -> ClockRow:
    outcome = run(arm.schedule, arm.hardware(engines), work, updates=updates, per_engine=per)
    return ClockRow(study, name, work.distribution.name, engines, per, work.seed, outcome)
