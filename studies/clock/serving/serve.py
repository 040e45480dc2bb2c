"""One run of a way to serve: requests come, and what became of each is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np

from studies.clock.hardware import Hardware
from studies.clock.link import RDMA, Link
from studies.clock.serving.decode import decode_pool
from studies.clock.serving.prefill import Forwarding, Prefiller, PrefillPool
from studies.clock.serving.traffic import Ask, Traffic


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take, in seconds."""

    first: float = 1.0
    """Until its first token."""
    token: float = 0.040
    """Per further token, mean."""

    def met(self, ask: Ask) -> bool:
        """Whether it was served in time."""
        return ask.first - ask.arrives <= self.first and ask.ended - ask.first <= self.token * ask.output


DEVICE, LIMITS = Hardware(), Limits()


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """A pool that prefills and one that decodes."""

    prefill: int
    decode: int
    forwarding: Forwarding = "offer"
    delay: float = 0.0
    """Seconds between reports of queue lengths, for forwarding by them."""
    grouped: bool = True
    """Whether each scenario has prefill instances of its own, where there are enough."""
    contiguous: bool = True


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Engines that do both."""

    engines: int


@dataclass(frozen=True, slots=True)
class Served:
    """What came of the requests of one run."""

    asked: int
    done: int
    late: int
    """Given up because nobody began them in time."""
    in_time: float
    """Share of all requests that met both limits."""
    first_in_time: float
    """Share that met the limit of the first token."""
    handed: int
    """Requests handed over with their keys and values."""
    handing: float
    """Mean seconds of a hand-over."""
    rejected: int
    """Offers that busy instances rejected."""
    hits: float
    """Share of prompts whose prefix was there."""


def serve(
    how: Disaggregated | Aggregated, traffic: Traffic, seed: int, hardware: Hardware = DEVICE,
    limits: Limits = LIMITS, link: Link = RDMA,
) -> Served:  # fmt: skip
    """The same arguments give the same run."""
    asks = traffic.asks(seed)
    done: list[Ask] = []
    late: list[Ask] = []
    apart = isinstance(how, Disaggregated)
    decoders = decode_pool(
        hardware, how.decode if apart else how.engines, done.append, prefills=not apart, link=link,
        contiguous=how.contiguous if apart else True,
    )  # fmt: skip
    time = decoders.floor.time
    gates: Mapping[int, PrefillPool] = {}
    if apart:
        rng = np.random.default_rng((seed, 99))
        groups = shares(how.prefill, traffic, hardware) if how.grouped else None
        pools: list[PrefillPool] = []
        for count in groups or (how.prefill,):
            members = [Prefiller(k, hardware) for k in range(count)]
            pools.append(
                PrefillPool(
                    time, members, how.forwarding, limits.first, how.delay, decoders.offer, late.append, rng
                )
            )  # fmt: skip
        gates = {k: pools[k if groups else 0] for k in range(len(traffic.scenarios))}
    for ask in asks:
        arrive = gates[ask.scenario].arrive if apart else decoders.offer
        time.at(ask.arrives, lambda ask=ask, arrive=arrive: arrive(ask))
    while not time.empty:
        decoders.floor.turn()
    unique = list({id(p): p for p in gates.values()}.values())
    return Served(
        asked=len(asks), done=len(done), late=len(late), in_time=sum(map(limits.met, done)) / max(len(asks), 1),
        first_in_time=sum(a.first - a.arrives <= limits.first for a in asks) / max(len(asks), 1),
        handed=decoders.handed, handing=decoders.handing / max(decoders.handed, 1),
        rejected=sum(p.rejected for p in unique),
        hits=sum(m.prefixes.hits for p in unique for m in p.members) / max(len(asks), 1),
    )  # fmt: skip


def shares(instances: int, traffic: Traffic, hardware: Hardware) -> Sequence[int] | None:
    """Prefill instances of each scenario by the work it brings, one at least; None where there are too few."""
    if instances < len(traffic.scenarios):
        return None
    work = [s.share * _mean(replace(traffic, scenarios=(s,)))[0] for s in traffic.scenarios]
    given = [1] * len(work)
    for _ in range(instances - len(work)):
        given[max(range(len(work)), key=lambda k: work[k] / given[k])] += 1
    return given


def balanced(devices: int, traffic: Traffic, hardware: Hardware = DEVICE, *, kept: bool = True) -> int:
    """Prefill instances of so many devices by P/D-Serve's rule: what prefill finishes is what decoding takes.

    n_p / T_p = n_d · b_d / (G · T_d): seconds of a prompt T_p, tokens of an answer G, a step T_d of b_d sequences.
    `kept`: prefixes are found again.
    """
    prompt, output = _mean(traffic, kept)
    ratio = hardware.prefill * prompt / (output / hardware.peak)
    return min(max(round(devices * ratio / (1 + ratio)), 1), devices - 1)


def _mean(traffic: Traffic, kept: bool = True) -> tuple[float, float]:
    """Mean tokens to compute and to write."""
    asks = replace(traffic, rate=20.0, seconds=120.0, profile=(1.0,)).asks(0)
    return mean(a.context - (a.prefix if kept else 0) for a in asks), mean(a.output for a in asks)
