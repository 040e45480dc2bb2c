"""What the local engine does with many requests inside, against itself: shared prefixes or none, trees in order or not,
steps before and after half of the requests were cancelled, and where the time of steps goes. Parts of
`rolltree bench serving`.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from engine import WAYS, Case, cases, ours, random_model
from machine import clock

from rolltree.engine.local import LocalEngine
from rolltree.engine.local.core import Core, News
from rolltree.engine.local.run import LocalRun
from rolltree.engine.local.sampling import stream_key
from rolltree.engine.protocol import Request, Sampling

TREES, STRETCH, INSIDE = 24, 6, 64
"""Of the order of trees: how many, tokens a node, and how many requests at once."""
WARM, TIMED = 48, 8
"""Steps before anything is timed, and steps timed before and after."""


@dataclass(frozen=True)
class Shared:
    """Tokens per second (medians) where requests share what they begin with, and where each has a copy."""

    case: str
    batch: int
    shared: float
    apart: float
    ratio_min: float
    ratio_median: float
    ratio_max: float


@dataclass(frozen=True)
class Ordered:
    """After which step of the engine whole trees were there; exact, so once."""

    order: str
    trees: int
    first: int
    mean: float
    last: int


@dataclass(frozen=True)
class Cancelled:
    """Milliseconds, minimum, median and maximum."""

    case: str
    inside: int
    cancelled: int
    before: list[float]
    """A step."""
    cancelling: list[float]
    after: list[float]
    """A step."""


@dataclass(frozen=True)
class Shares:
    """Of the processor time of all steps of one case, by what it is spent on."""

    case: str
    batch: int
    seconds: float
    shares: dict[str, float]


_MERGES = ("'index_select'", "'flatten'", "'reshape'", "torch.lerp", "torch.logaddexp", "torch.sigmoid")
_WORK: dict[str, Callable[[str, str], bool]] = {
    "attention products": lambda file, name: "torch.bmm" in name,
    "linear layers": lambda file, name: "_nn.linear" in name,
    "softmax and masses": lambda file, name: any(f"'{x}'" in name for x in ("softmax", "amax", "log_")),
    "norms": lambda file, name: "torch.rms_norm" in name,
    "gated units": lambda file, name: "_nn.silu" in name or "'mul_'" in name,
    "keys and values": lambda file, name: file == "slab.py",
    "gathering and merging": lambda file, name: file == "shared.py" or any(x in name for x in _MERGES),
}
"""By file and name of a function, its own time without what it calls; what fits nothing is the rest."""
_WHOLE = {"drawing": ("choose.py", "choose"), "finding and keeping prefixes": ("prefix.py", "find restore store")}
"""Functions with all that they call."""


def shares(name: str, batch: int = 256) -> Shares:
    """Run a case under a profiler, behind one without."""
    net, codec = random_model()

    async def run() -> Shares:
        engine = LocalEngine(net, codec, max_batch=batch, seed=0)
        core, profile = engine._worker.core, cProfile.Profile(time.process_time)
        step = core.step

        def profiled() -> News:
            profile.enable()
            try:
                return step()
            finally:
                profile.disable()

        for repeat in range(2):
            core.step = profiled if repeat else step
            await ours(engine, next(c for c in cases(codec.vocab_size, batch, repeat) if c.name == name))
        await engine.close()
        return Shares(name, batch, *_sorted(profile))

    return asyncio.run(run())


def _sorted(profile: cProfile.Profile) -> tuple[float, dict[str, float]]:
    stats: Any = pstats.Stats(profile)
    spent = dict.fromkeys((*_WORK, *_WHOLE), 0.0)
    for (path, _, function), (_, _, own, whole, _) in stats.stats.items():
        file = path.rsplit("/", 1)[-1]
        for what, (where, names) in _WHOLE.items():
            if file == where and function in names.split():
                spent[what] += whole
        fitting = next((what for what, fits in _WORK.items() if fits(file, function)), None)
        if fitting is not None:
            spent[fitting] += own
    return stats.total_tt, {what: seconds / stats.total_tt for what, seconds in spent.items()}


def share(name: str, batch: int, repeats: int) -> Shared:
    """One case with shared prefixes and without, in turn."""
    net, codec = random_model()

    async def run() -> Shared:
        engines = [LocalEngine(net, codec, max_batch=batch, seed=0) for _ in range(2)]
        core = engines[1]._worker.core
        core.limits = replace(core.limits, commons=0)
        core.commons.room = 0
        rates: list[list[float]] = [[], []]
        for repeat in range(repeats + 1):
            case = next(c for c in cases(codec.vocab_size, batch, repeat) if c.name == name)
            for engine, rate in zip(engines, rates, strict=True):
                made, took, _ = await ours(engine, case)
                if repeat:
                    rate.append(made / took)
        for engine in engines:
            await engine.close()
        ratios = [a / b for a, b in zip(*rates, strict=True)]
        middle = statistics.median
        return Shared(name, batch, middle(rates[0]), middle(rates[1]), min(ratios), middle(ratios), max(ratios))

    return asyncio.run(run())


def order(named: bool) -> Ordered:
    """Trees that say which tree a request belongs to, or do not."""
    net, codec = random_model()

    async def run() -> Ordered:
        engine = LocalEngine(net, codec, max_batch=INSIDE, seed=0, lockstep=True)
        rng, ends = np.random.default_rng(0), list[int]()

        async def grow(prefix: np.ndarray, name: str, depth: int) -> None:
            sampling = Sampling(max_tokens=STRETCH, ignore_eos=True)
            forks = "planned" if depth > 1 else "none"
            runs = [engine.submit(Request(prefix, sampling, affinity=name, forks=forks)) for _ in range(WAYS)]
            samples = await asyncio.gather(*runs)
            if depth > 1:
                await asyncio.gather(*(grow(np.concatenate([prefix, s.actions]), name, depth - 1) for s in samples))

        async def tree(i: int) -> None:
            await grow(rng.integers(1, codec.vocab_size, 32), f"tree {i}" if named else "", 3)
            ends.append(engine._worker.core.steps)

        await asyncio.gather(*(tree(i) for i in range(TREES)))
        await engine.close()
        return Ordered("begun trees first" if named else "first come", TREES, min(ends), sum(ends) / TREES, max(ends))

    return asyncio.run(run())


def cancel(name: str, repeats: int, batch: int = 256) -> Cancelled:
    """Steps before and after every second of the requests inside was cancelled."""
    net, codec = random_model()

    async def run() -> Cancelled:
        core = LocalEngine(net, codec, max_batch=batch, seed=0)._worker.core
        before, cancelling, after = list[float](), list[float](), list[float]()
        for repeat in range(repeats + 1):
            case = replace(next(c for c in cases(codec.vocab_size, batch, repeat) if c.name == name), max_tokens=128)
            core.submit(runs := _runs(case))
            _steps(core, WARM)
            had = _steps(core, TIMED)
            began = clock()
            core.stop(dict.fromkeys(runs[::2], "abort"))
            took = 1000 * (clock() - began)
            have = _steps(core, TIMED)
            core.stop_all("abort")
            core.forget()
            if repeat:
                before.append(had)
                cancelling.append(took)
                after.append(have)
        return Cancelled(name, batch, batch // 2, *(_spread(x) for x in (before, cancelling, after)))

    with torch.inference_mode():
        return asyncio.run(run())


def _runs(case: Case) -> list[LocalRun]:
    sampling, runs = Sampling(max_tokens=case.max_tokens, ignore_eos=True), list[LocalRun]()
    for i, prompt in enumerate(case.prompts):
        request = Request(prompt, sampling, forks="none")
        runs.append(LocalRun(request, np.asarray(prompt, np.int64), len(prompt) + case.max_tokens, stream_key(i), 0))
    return runs


def _steps(core: Core, count: int) -> float:
    """Milliseconds of a step, in the mean."""
    began = clock()
    for _ in range(count):
        core.step()
    return 1000 * (clock() - began) / count


def _spread(values: list[float]) -> list[float]:
    return [round(f(values), 2) for f in (min, statistics.median, max)]
