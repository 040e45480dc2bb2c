"""RollArt (arXiv 2512.22560) on the clock: engines of two kinds and work that belongs to one of them, verifiers that
stand beside or are called, and weights that move while engines decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from rolltree.control.schedule import PRESETS, Group, Resume, Schedule, StalenessBound, Stop
from studies.clock.arms import ARMS
from studies.clock.hardware import Hardware
from studies.clock.serving.ratio import Ratio, over
from studies.clock.work import LogNormal, WorkItem, Workload
from studies.clock.world import ClockWorld, simulate

READS, WRITES = "compute", "bandwidth"
"""The pools: engines that prefill fast and engines that decode fast, at the same price."""
FAST_PREFILL = Hardware(prefill=1 / 40_000, plateau=0.030, per_sequence=0.030 / 64)
FAST_DECODE = Hardware(prefill=1 / 10_000, plateau=0.015, per_sequence=0.015 / 64)
KEEPING = replace(PRESETS["rollart"], stop=Stop(), age=StalenessBound(1, "wait"), resume=Resume("keep"))
"""RollArt's schedule without spare rollouts, so that no arm throws work away."""


@dataclass(frozen=True, slots=True)
class AgentWork:
    """Half of the prompts write much and read little, the other half read pages and write little."""

    seed: int = 0
    wait: float = 2.0
    """Mean seconds of an answer of the environment."""
    verify: float = 0.0
    """Seconds that a verifier takes."""
    route: str = "affinity"
    """affinity: to the kind it suits; against: to the other; none: to whoever is free."""
    failing: float = 0.0

    def item(self, number: int, rollouts: int) -> WorkItem:
        """The same number gives the same item."""
        writes = number % 2 == 0
        lengths = LogNormal(3000.0 if writes else 300.0, 0.7)
        made = Workload(lengths, turns=4 if writes else 8, wait=self.wait, seed=self.seed).item(number, rollouts)
        pool = (WRITES if writes == (self.route == "affinity") else READS) if self.route != "none" else ""
        reads = () if writes else (3000,) * 7
        return replace_jobs(made, reads, pool, self.verify)


def replace_jobs(item: WorkItem, reads: tuple[int, ...], pool: str, verify: float) -> WorkItem:
    """The same work with what it reads, where it belongs and what it takes to judge."""
    return WorkItem(
        tuple(job._replace(reads=reads, pool=pool, verify=verify) for job in item.jobs), item.slowness
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Paced:
    """A run: trained rollouts per second and device, and what was used."""

    rate: float
    verified: float
    """Share of the verifiers' time in which they worked; 0 where there are none of its own."""
    trained: int


def paced(
    schedule: Schedule, hardware: Hardware, work: AgentWork, fleet: Mapping[str, Hardware] | None = None, *,
    updates: int = 8, per_engine: int = 4,
) -> Paced:  # fmt: skip
    """The second part of a run, once a third of its updates are made."""
    world = ClockWorld(hardware, dict(fleet or {}))
    times: list[float] = []
    counts: list[int] = []

    def told(group: Group[WorkItem]) -> None:
        if group.usage == "trained":
            version = group.born + group.staleness
            if version == len(times):
                times.append(world.now)
                counts.append(0)
            counts[version] += len(group.kept)

    simulate(schedule, world, work, updates=updates, batch=per_engine * len(world.engines), size=8, on_settled=told)
    first, devices = updates // 3, hardware.devices + hardware.verifiers
    seconds = times[-1] - times[first - 1]
    used = world.verifying / (hardware.verifiers * world.now) if hardware.verifiers else 0.0
    return Paced(sum(counts[first:]) / seconds / devices, used, sum(counts))


def mixed(engines: int) -> Mapping[str, Hardware]:
    """Half of the engines of each kind."""
    return {
        READS: replace(FAST_PREFILL, engines=engines // 2), WRITES: replace(FAST_DECODE, engines=engines - engines // 2)
    }  # fmt: skip


def affinity(engines: int, seeds: int) -> Iterator[Ratio]:
    """Work on the engines that suit it, over the same price in engines of one kind and over any engine that is free."""
    base = Hardware(engines, colocated=False)

    def rates(route: str, fleet: Mapping[str, Hardware]) -> list[float]:
        return [paced(KEEPING, base, AgentWork(s, route=route), fleet).rate for s in range(seeds)]

    mine = rates("affinity", mixed(engines))
    for name, kind in (("that prefill fast", FAST_PREFILL), ("that decode fast", FAST_DECODE)):
        theirs = rates("none", {"": replace(kind, engines=engines)})
        yield over(f"rollouts a second, affinity over engines {name} alone", f"{engines:,} engines", mine, theirs)
    for route, what in (("none", "any free engine"), ("against", "the wrong kind")):
        theirs = rates(route, mixed(engines))
        yield over(f"rollouts a second, affinity over {what}", f"{engines:,} engines", mine, theirs)


def verifiers(engines: int, seeds: int) -> tuple[list[Ratio], float]:
    """Verifiers that are called, over a quarter of the devices set aside for them; and how much these were used."""
    mine, theirs = list[float](), list[Paced]()
    aside = max(engines // 4, 1)
    for seed in range(seeds):
        work = AgentWork(seed, verify=1.0, route="none")
        mine.append(paced(KEEPING, Hardware(engines, colocated=False), work).rate)
        rest = Hardware(engines - aside, colocated=False, verifiers=aside)
        theirs.append(paced(KEEPING, rest, work))
    ratio = over(
        "rollouts a second and device, verifiers called over set aside", f"{engines:,} devices", mine,
        [p.rate for p in theirs],
    )  # fmt: skip
    return [ratio], mean(p.verified for p in theirs)


def use(engines: int = 8, seeds: int = 3) -> str:
    """How much verifiers that stand aside are used."""
    share = verifiers(engines, seeds)[1]
    return f"Verifiers that stand aside, a quarter of {engines} devices, work {share:.0%} of the time."


def hidden(engines: int, seeds: int, share: float = 0.72) -> Iterator[Ratio]:
    """Weights that move in the background over weights that are waited for."""
    plain = Hardware(engines, colocated=False, sync=20.0)
    runs = [
        (paced(KEEPING, replace(plain, hidden=share), AgentWork(s, route="none")).rate,
         paced(KEEPING, plain, AgentWork(s, route="none")).rate)
        for s in range(seeds)
    ]  # fmt: skip
    mine, theirs = [a for a, _ in runs], [b for _, b in runs]
    yield over(f"rollouts a second, {share:.0%} of 20 s of transfer hidden", f"{engines:,} engines", mine, theirs)


def together(engines: int, seeds: int) -> Iterator[Ratio]:
    """All of it over gather-all and over one step ahead, on engines that decode fast and with verifiers aside."""
    aside = max(engines // 4, 1)
    whole = Hardware(engines, colocated=False, hidden=0.72, sync=20.0)
    plain = Hardware(max(engines - aside, 1), verifiers=aside, sync=20.0)
    mine = [paced(KEEPING, whole, AgentWork(s, verify=1.0), mixed(engines)).rate for s in range(seeds)]
    for other in ("sync", "one step ahead"):
        arm = ARMS[other]
        theirs = [
            paced(arm.schedule, replace(plain, colocated=arm.colocated), AgentWork(s, verify=1.0, route="none"),
                  {"": replace(FAST_DECODE, engines=plain.engines)}).rate
            for s in range(seeds)
        ]  # fmt: skip
        yield over(f"rollouts a second and device, all of it over {other}", f"{engines:,} engines", mine, theirs)


SIZES: Sequence[tuple[int, int]] = ((2, 5), (8, 5), (64, 2))


def ratios(sizes: Sequence[tuple[int, int]] = SIZES) -> Iterator[Ratio]:
    """All of them."""
    for engines, seeds in sizes:
        yield from affinity(engines, seeds)
    for engines, seeds in sizes[1:]:
        yield from verifiers(engines, seeds)[0]
        yield from hidden(engines, seeds)
        yield from together(engines, seeds)
