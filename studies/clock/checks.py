"""What evidence rests on: one experiment of each system on the clock, from a seed."""

from __future__ import annotations

from dataclasses import replace

from studies.clock import rollart as agents
from studies.clock.hardware import Hardware
from studies.clock.hybrid.flow import Batch, cheapest, mapped, others, seconds
from studies.clock.serving.elastic import scale
from studies.clock.serving.pdserve import traffic
from studies.clock.serving.serve import Disaggregated, serve
from studies.lab.claim import Measured


def pd_serve(seed: int) -> Measured:
    """First tokens in time with offers and with queues by reports, on 16 devices."""
    offered = Disaggregated(6, 10, grouped=False)
    mine = serve(offered, traffic(16), seed)
    theirs = serve(replace(offered, forwarding="reported", delay=1.0), traffic(16), seed)
    return Measured(
        mine.first_in_time, theirs.first_in_time, acted={"rejected offers": mine.rejected, "hand-overs": mine.handed}
    )  # fmt: skip


def elastic_moe(seed: int) -> Measured:
    """Requests in time over a tide, from 8 devices on; new processes stand ready on both sides."""
    mine, theirs = scale("elastic", 8, seed), scale("standby", 8, seed)
    return Measured(mine.in_time, theirs.in_time, acted={"moved requests": float(mine.moved)})


def rollart(seed: int) -> Measured:
    """Rollouts a second and device on engines of two kinds, by affinity and by who is free."""
    base, fleet = Hardware(8, colocated=False), agents.mixed(8)
    mine = agents.paced(agents.KEEPING, base, agents.AgentWork(seed), fleet)
    theirs = agents.paced(agents.KEEPING, base, agents.AgentWork(seed, route="none"), fleet)
    return Measured(mine.rate, theirs.rate, acted={"rollouts sent by affinity": mine.trained})


def hybridflow(seed: int) -> Measured:
    """Iterations a minute with the placement that was searched, on 64 devices and lengths it has not seen, against the
    best of the fixed ways on the lengths that the search knew.
    """
    known, new = Batch.of(64, 1000 + seed), Batch.of(64, seed)
    _, placement, way = mapped(64, known)
    # Who generates in the layout of training has no choice of a step's devices.
    each = [
        cheapest([p], w, known) if w.generate == 1 else (seconds(p, known, w), p, w) for p, w in others(64).values()
    ]
    _, fixed, other = min(each, key=lambda one: one[0])
    differs = placement != fixed or way != other
    return Measured(
        60 / seconds(placement, new, way), 60 / seconds(fixed, new, other),
        acted={"placements or layouts changed": float(differs)},
    )  # fmt: skip
