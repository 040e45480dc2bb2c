"""One iteration of PPO with four models on pools of devices, and the search for the placement that takes least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

from studies.clock.hardware import Hardware
from studies.clock.hybrid.layout import Resharding
from studies.clock.link import RDMA
from studies.clock.serving.ratio import Ratio, over
from studies.clock.work import LogNormal, Pareto, Workload

MODELS = ("actor", "critic", "reference", "reward")
STAGES: Mapping[str, Mapping[str, float]] = {
    "generate": {},
    "prepare": {"critic": 1.0, "reference": 1.0, "reward": 1.0},
    "train": {"actor": 3.0, "critic": 3.0},
}
"""Forward passes that each model makes of every token of a batch; a backward counts twice. Generation is apart."""
FORWARD = Hardware().train / 3
"""Device-seconds of a forward pass of a token."""
SPREAD = 0.93
"""n devices do the work of n^0.93: what they tell one another grows with them."""
WEIGHTS = 14e9
"""Bytes of a model."""
LEAST: Mapping[str, int] = {"actor": 2, "critic": 2, "reference": 1, "reward": 1}
"""Devices that a model needs at least: those that are trained have moments and gradients."""
PER_DEVICE = 32
"""Rollouts of a batch for each device."""
Placement = tuple[tuple[tuple[str, ...], int], ...]
"""Pools: the models of each, and its devices."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Lengths of the rollouts of an iteration."""

    tokens: int
    longest: int
    rollouts: int

    @staticmethod
    def of(devices: int, seed: int, *, pareto: bool = False) -> Batch:
        """Heavy-tailed lengths."""
        work = Workload(Pareto() if pareto else LogNormal(), seed=seed)
        lengths = [job.turns[0] for k in range(PER_DEVICE * devices // 8) for job in work.item(k, 8).jobs]
        return Batch(sum(lengths), max(lengths), len(lengths))


@dataclass(frozen=True, slots=True)
class Way:
    """How the actor's weights come to where they generate."""

    tensor: int = 4
    """Tensor parts that train on one replica of `tensor` devices."""
    generate: int = 1
    """Tensor parts that generate; their devices share a step's work."""
    strided: bool = True
    whole: bool = False
    """Every device gathers the whole model layer by layer from all, as with parameters sharded over all devices."""
    copy: bool = False
    """The generating engines are others than the training ones: they get every update over the network."""

    def transition(self, devices: int) -> float:
        """Seconds until the actor's devices can generate."""
        if self.whole:
            return RDMA.seconds(WEIGHTS * (devices - 1) / devices, 32 * devices)
        if self.copy:
            return RDMA.seconds(WEIGHTS, 32)
        layout = Resharding(1, self.tensor, 1, self.generate)
        place = layout.strided if self.strided else layout.contiguous
        return RDMA.seconds(WEIGHTS * layout.fetched(place), 32 * layout.replicas)


def generation(batch: Batch, devices: int, way: Way, hardware: Hardware | None = None) -> float:
    """Seconds of the rollouts: the longest one alone, or all over all engines at their peak."""
    h = hardware or Hardware()
    gain = way.generate**0.6
    """Of several devices on one step: a step of few sequences gets so much shorter, all of them lose the rest."""
    engines = devices / way.generate
    return max(batch.longest * h.plateau / gain, batch.tokens / (h.peak * gain * engines))


def seconds(placement: Placement, batch: Batch, way: Way) -> float:
    """Σ over stages of the slowest pool's sum over its models, with the transition before generating."""
    total = 0.0
    for stage, forwards in STAGES.items():
        slowest = 0.0
        for models, devices in placement:
            here = sum(forwards.get(m, 0.0) for m in models) * batch.tokens * FORWARD / devices**SPREAD
            if stage == "generate" and "actor" in models:
                here += way.transition(devices) + generation(batch, devices, way)
            slowest = max(slowest, here)
        total += slowest
    return total


def placements(devices: int, grain: int = 8) -> Iterator[Placement]:
    """All sets of pools of the four models, with devices in so many equal grains."""
    size = devices // grain or 1
    for pools in partitions(MODELS):
        grains = devices // size
        for cuts in combinations(range(1, grains), len(pools) - 1):
            counts = [b - a for a, b in zip((0, *cuts), (*cuts, grains), strict=True)]
            made = tuple((models, size * n) for models, n in zip(pools, counts, strict=True))
            if all(n >= max(LEAST[m] for m in models) for models, n in made):
                yield made


@cache
def partitions(items: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Set partitions."""
    if not items:
        return ((),)
    head, found = items[0], list[tuple[tuple[str, ...], ...]]()
    for rest in partitions(items[1:]):
        found.append(((head,), *rest))
        found += [(*rest[:k], (head, *rest[k]), *rest[k + 1 :]) for k in range(len(rest))]
    return tuple(found)


def mapped(devices: int, batch: Batch) -> tuple[float, Placement, Way]:
    """The placement and the generating layout that take least: found before the batch is known, on another one."""
    return cheapest(placements(devices), Way(), batch)


def cheapest(of: Iterable[Placement], way: Way, batch: Batch) -> tuple[float, Placement, Way]:
    """The least of some placements, with the best number of devices on one generating step."""
    found: list[tuple[float, Placement, Way]] = []
    for placement in of:
        actors = next(devices for models, devices in placement if "actor" in models)
        for count in (1, 2, 4):
            if count <= actors:
                how = replace(way, generate=count)
                found.append((seconds(placement, batch, how), placement, how))
    return min(found, key=lambda one: one[0])


def others(devices: int) -> Mapping[str, tuple[Placement, Way]]:
    """Placements that are fixed beforehand, as systems before it had them (reconstructed). Where they do not generate
    as they train, they too may choose how many devices share a step."""
    half, eighth = devices // 2, max(devices // 8, 1)
    out: dict[str, tuple[Placement, Way]] = {
        "all together, parameters gathered from all": (((MODELS, devices),), Way(whole=True)),
    }  # fmt: skip
    if devices >= 8:
        out["a pool for each, weights copied"] = (
            ((("actor",), half), (("critic",), devices - half - 2 * eighth), (("reference",), eighth),
             (("reward",), eighth)), Way(copy=True),
        )  # fmt: skip
        out["two pools, generating in the layout of training"] = (
            ((("actor", "reference"), half), (("critic", "reward"), devices - half)), Way(generate=4),
        )  # fmt: skip
    return out


SIZES: Sequence[tuple[int, int]] = ((2, 5), (8, 5), (64, 5), (1024, 5))


def ratios(sizes: Sequence[tuple[int, int]] = SIZES) -> Iterator[Ratio]:
    """Iterations per second, mapped over fixed placements; and what strides save."""
    for devices, seeds in sizes:
        batches = [Batch.of(devices, s) for s in range(1, seeds + 1)]
        _, placement, way = mapped(devices, Batch.of(devices, 0))
        mine = [seconds(placement, b, way) for b in batches]
        for name, (other, how) in others(devices).items():
            best = cheapest([other], how, Batch.of(devices, 0))[2] if how.generate == 1 else how
            theirs = [seconds(other, b, best) for b in batches]
            yield over(f"iterations a second, mapped over {name}", f"{devices:,} devices", theirs, mine)
    for layout in (Resharding(1, 8, 1, 2), Resharding(2, 8, 1, 4), Resharding(4, 8, 2, 2)):
        mine, theirs = layout.fetched(layout.strided), layout.fetched(layout.contiguous)
        yield over(
            "weights received, strided groups over contiguous ones",
            f"{layout.p} × {layout.t} to {layout.p_g} × {layout.t_g}", [mine], [theirs],
        )  # fmt: skip
