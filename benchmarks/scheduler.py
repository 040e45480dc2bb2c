"""The scheduler of asynchronous training alone: node operations a second, by requests in flight.

    python benchmarks/scheduler.py [--flight 1000 10000 100000] [--repeats 3] [--json FILE]

A driver that computes nothing keeps that many rollouts in flight: one ends, in random order, and the scheduler fills
its place, forms batches, publishes. A rollout is two operations: started and ended. Every publication interrupts and
restarts nothing here (engines reload while rollouts run), so the cost is that of the accounts. Rates are per second of
processor time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from machine import save

from rolltree.control.schedule import (
    Action,
    Ask,
    Ended,
    Event,
    Offer,
    Offered,
    Publish,
    Published,
    Resume,
    Rollout,
    Schedule,
    Scheduler,
    Segment,
    Settled,
    Start,
    Stop,
    TopUp,
    Train,
    Trained,
    Woken,
    follow,
)
from rolltree.generate.runner import rare_collections

GROUP, BATCH = 8, 64


@dataclass(frozen=True)
class Row:
    """Operations per second of processor time, and microseconds per rollout, over repeats."""

    flight: int
    rate_min: float
    rate_median: float
    rate_max: float
    microseconds: float


class Nothing:
    """A driver without engines."""

    def __init__(self) -> None:
        self.flight: list[Rollout[int]] = []
        self.due: list[Event[int]] = []

    def act(self, action: Action[int]) -> Event[int] | None:
        match action:
            case Start(rollout):
                self.flight.append(rollout)
            case Ask(number):
                return Offered(Offer(number, (GROUP,)))
            case Train():
                self.due.append(Trained())
            case Publish():
                self.due.append(Published())
            case Settled():
                pass
            case _:
                raise RuntimeError(f"{action} is asked for, which this schedule never does")
        return None


def rate(flight: int, rollouts: int) -> float:
    """Operations per second with that many in flight, over so many rollouts."""
    nothing, rng = Nothing(), random.Random(0)
    schedule = Schedule(TopUp(flight / GROUP / BATCH), Stop("finished"), Resume(update="run on"))
    scheduler = Scheduler[int](schedule, BATCH)
    follow(scheduler, Woken(), nothing.act)
    if len(nothing.flight) < flight - GROUP:
        raise RuntimeError(f"{len(nothing.flight)} rollouts are in flight, not {flight}")
    segments = [Segment(0, 32)]
    # Groups end once as many rollouts have ended as are in flight several times over.
    for count in (3 * flight, rollouts):
        began = time.process_time()
        for _ in range(count):
            place = rng.randrange(len(nothing.flight))
            nothing.flight[place], nothing.flight[-1] = nothing.flight[-1], nothing.flight[place]
            follow(scheduler, Ended(nothing.flight.pop(), segments), nothing.act)
            while nothing.due:
                follow(scheduler, nothing.due.pop(0), nothing.act)
    return 2 * rollouts / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flight", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--rollouts", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    done: list[Row] = []
    print(f"{'in flight':>10}  operations a second, min / median / max   microseconds per rollout")
    for flight in options.flight:
        with rare_collections():  # as in every flight
            rates = [rate(flight, options.rollouts) for _ in range(options.repeats)]
        middle = statistics.median(rates)
        done.append(Row(flight, min(rates), middle, max(rates), 2e6 / middle))
        print(f"{flight:10,}  {min(rates):9,.0f} {middle:9,.0f} {max(rates):9,.0f}   {2e6 / middle:9.1f}", flush=True)
    save(options.json, done)


if __name__ == "__main__":
    main()
