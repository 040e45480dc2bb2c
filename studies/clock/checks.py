"""What evidence rests on: one experiment of each system on the clock, from a seed."""

from __future__ import annotations

from dataclasses import replace

from rolltree.lab.claim import Measured
from studies.clock import rollart as agents
from studies.clock.hardware import Hardware
from studies.clock.hybrid.flow import Batch, Way, cheapest, mapped, others, seconds
from studies.clock.serving.elastic import scale
from studies.clock.serving.pdserve import traffic
from studies.clock.serving.serve import Disaggregated, serve


def pd_serve(seed: int) -> Measured:
    """First tokens in time with offers and with queues by reports, on 16 devices."""
    offered = Disaggregated(6, 10, grouped=False)
    mine = serve(offered, traffic(16), seed)
    theirs = serve(replace(offered, forwarding="reported", delay=1.0), traffic(16), seed)
    return Measured(
        mine.first_in_time, theirs.first_in_time, acted={"rejected offers": mine.rejected, "hand-overs": mine.handed}
    )  # fmt: skip


def elastic_moe(seed: int) -> Measured:
    """Requests in time over a tide, from 8 devices on."""
    mine, theirs = scale("elastic", 8, seed), scale("replica", 8, seed)
    return Measured(mine.in_time, theirs.in_time, acted={"changes": mine.changes, "moved requests": mine.moved})


def rollart(seed: int) -> Measured:
    """Rollouts a second and device on engines of two kinds, by affinity and by who is free."""
    base, fleet = Hardware(8, colocated=False), agents.mixed(8)
    mine = agents.paced(agents.KEEPING, base, agents.AgentWork(seed), fleet)
    theirs = agents.paced(agents.KEEPING, base, agents.AgentWork(seed, route="none"), fleet)
    return Measured(mine.rate, theirs.rate, acted={"rollouts sent by affinity": mine.trained})


def hybridflow(seed: int) -> Measured:
    """Iterations a minute with the placement that was searched, on 64 devices and lengths it has not seen."""
    known, new = Batch.of(64, 1000), Batch.of(64, seed)
    _, placement, way = mapped(64, known)
    fixed, _ = others(64)["a pool for each, weights copied"]
    other = cheapest([fixed], Way(copy=True), known)[2]
    differs = placement != fixed or way != other
    return Measured(
        60 / seconds(placement, new, way), 60 / seconds(fixed, new, other), acted={"placements changed": float(differs)}
    )  # fmt: skip
