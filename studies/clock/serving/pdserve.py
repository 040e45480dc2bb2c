"""P/D-Serve (arXiv 2408.08147) on the clock: pools that prefill and decode, offers that busy instances reject, and one
transfer for a sequence's keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from studies.clock.link import LLAMA_7B, RDMA
from studies.clock.serving.ratio import Ratio, over
from studies.clock.serving.serve import LIMITS, Aggregated, Disaggregated, Limits, balanced, serve
from studies.clock.serving.traffic import Traffic

ENOUGH = 0.9
"""Share of requests that must meet both limits for a rate to be carried."""
STEP = 1.07
"""Between the rates that are tried."""
DEVICES = ((2, 5), (8, 5), (64, 3))
"""Devices, and seeds."""
TOKENS = (0.025, 0.040, 0.080)
"""Limits of seconds per token."""
DELAYS = (0.0, 0.25, 0.5, 1.0, 2.0)
HIGH = 3.0
"""Requests per second and device where forwarding is compared: bursts exceed what prefill can do."""


def traffic(devices: int, rate: float = HIGH, seconds: float = 30.0) -> Traffic:
    """Bursts of requests of four scenarios at so many per second and device."""
    return Traffic(rate * devices, seconds)


@cache
def tuned(devices: int, seed: int = 1000) -> int:
    """Prefill instances of so many devices that carry most, by trying them at 8 devices."""
    found = max(range(1, 8), key=lambda p: carried(Disaggregated(p, 8 - p), 8, seed, LIMITS))
    return min(max(round(devices * found / 8), 1), devices - 1)


def carried(how: Disaggregated | Aggregated, devices: int, seed: int, limits: Limits) -> float:
    """The highest rate, requests per second and device, at which enough of them are served in time."""
    low, high = 0, 45
    while low < high:
        middle = (low + high + 1) // 2
        ok = serve(how, traffic(devices, 0.3 * STEP**middle), seed, limits=limits).in_time >= ENOUGH
        low, high = (middle, high) if ok else (low, middle - 1)
    return 0.3 * STEP**low


def apart(sizes: Sequence[tuple[int, int]] = DEVICES) -> Iterator[Ratio]:
    """Rate carried by pools apart over engines that do both."""
    for devices, seeds in sizes:
        prefill = tuned(devices)
        for limit in TOKENS if devices == 8 else (LIMITS.token,):
            limits = replace(LIMITS, token=limit)
            here = [carried(Disaggregated(prefill, devices - prefill), devices, s, limits) for s in range(seeds)]
            both = [carried(Aggregated(devices), devices, s, limits) for s in range(seeds)]
            where = f"{devices:,} devices, {1000 * limit:g} ms a token, {prefill} of them prefill"
            yield over("rate carried, pools apart over engines that do both", where, here, both)


def large(devices: int = 1024, seeds: int = 2) -> Iterator[Ratio]:
    """Requests in time at one rate, where looking for the highest would take too long."""
    prefill = tuned(devices)
    work = traffic(devices, 2.0, 9.0)
    mine = [serve(Disaggregated(prefill, devices - prefill), work, s).in_time for s in range(seeds)]
    both = [serve(Aggregated(devices), work, s).in_time for s in range(seeds)]
    where = f"{devices:,} devices, {1000 * LIMITS.token:g} ms a token, 2 requests a second and device"
    yield over("requests in time, pools apart over engines that do both", where, mine, both)


def forwarding(devices: int = 16, seeds: int = 5, delays: Sequence[float] = DELAYS) -> Iterator[Ratio]:
    """First tokens in time, by offers over by reports of some age."""
    prefill = tuned(devices)
    offered = Disaggregated(prefill, devices - prefill, grouped=False)
    mine = [serve(offered, traffic(devices), s).first_in_time for s in range(seeds)]
    for delay in delays:
        for by in ("reported", "reported and sent"):
            other = replace(offered, forwarding=by, delay=delay)
            theirs = [serve(other, traffic(devices), s).first_in_time for s in range(seeds)]
            yield over(f"first tokens in time, offers over queues as {by}", f"reports every {delay:g} s", mine, theirs)


def grouping(devices: int = 16, seeds: int = 5) -> Iterator[Ratio]:
    """Requests in time with prefill instances for each scenario over all for all."""
    prefill = tuned(devices)
    mine = [serve(Disaggregated(prefill, devices - prefill), traffic(devices), s).in_time for s in range(seeds)]
    theirs = [serve(Disaggregated(prefill, devices - prefill, grouped=False), traffic(devices), s).in_time
              for s in range(seeds)]  # fmt: skip
    yield over("requests in time, instances by scenario over all for all", f"{devices} devices", mine, theirs)


def transfer(seeds: int = 5) -> Iterator[Ratio]:
    """Seconds of a hand-over in one buffer over block by block."""
    lengths = [[a.context for a in traffic(8).asks(s)] for s in range(seeds)]
    mine = [sum(LLAMA_7B.together(RDMA, n) for n in some) for some in lengths]
    theirs = [sum(LLAMA_7B.by_blocks(RDMA, n) for n in some) for some in lengths]
    yield over("seconds of a hand-over, one buffer over blocks", "no other traffic", mine, theirs)


def rule() -> str:
    """What the rule of rates gives beside the best by trying, at 8 devices."""
    best, kept, anew = tuned(8), balanced(8, traffic(8)), balanced(8, traffic(8), kept=False)
    return (
        f"Of 8 devices {best} prefill where most is carried; the rule n_p/T_p = n_d·b_d/(G·T_d) gives "
        f"{kept} if every prefix is found again and {anew} if none is."
    )


def ratios() -> Iterator[Ratio]:
    """All of them."""
    yield from apart()
    yield from large()
    yield from forwarding()
    yield from grouping()
    yield from transfer()
