"""What every engine of latents must do: `LATENT_CHECKS[name](make_engine, observation)` runs one check on a new one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolltree.engine.protocol import Engine, EngineError, Request, Sample, Sampling
from rolltree.engine.texts import actions_of
from rolltree.errors import RolltreeError
from rolltree.testing.engine import hold
from rolltree.tree.node import Array, join_actions

DRAWS = 600


@dataclass(frozen=True, slots=True)
class LatentProbe:
    """A fresh engine and the actions of an observation that it can go on from."""

    engine: Engine
    prompt: Array

    async def sample(self, prefix: Array | None = None, **knobs: Any) -> Sample:
        """One sample; knobs are those of `Sampling`."""
        return await self.engine.submit(Request(self.prompt if prefix is None else prefix, Sampling(**knobs)))


Check = Callable[[LatentProbe], Coroutine[Any, Any, None]]


async def steps_follow_their_density(ask: LatentProbe) -> None:
    """Many draws of one step fit the density that is reported for them, at several noises."""
    head = await ask.sample(seed=1, max_tokens=3)
    prefix = join_actions([ask.prompt, head.actions])
    for noise in (0.5, 1.0, 2.0):
        runs = (ask.sample(prefix, seed=seed, max_tokens=1, temperature=noise) for seed in range(DRAWS))
        drawn = await asyncio.gather(*runs)
        x = np.array([s.actions[0] for s in drawn], np.float64)
        own = x.std(0) > 1e-9  # without what an action says of itself, such as its noise
        told = np.array([float(s.sampling_logprob[0]) for s in drawn])
        mean, var = x[:, own].mean(0), x[:, own].var(0, ddof=1)
        fitted = -0.5 * (((x[:, own] - mean) ** 2 / var) + np.log(2 * np.pi * var)).sum(1)
        # A Gaussian that was fitted to the draws says of them on average what the true density says, up to d/n.
        slack = 5 * (own.sum() / DRAWS + np.std(fitted - told) / np.sqrt(DRAWS)) + 0.2
        hold(
            bool(abs((fitted - told).mean()) < slack),
            f"At noise {noise:g} steps do not follow the density that is reported for them: {told.mean():.1f} nats "
            f"on average, where draws so spread have {fitted.mean():.1f}.",
        )


async def logp_is_what_score_says(ask: LatentProbe) -> None:
    """Scoring a path again gives the log-probs of its steps, at whatever noise each was drawn."""
    parts = [ask.prompt]
    for noise in (1.0, 0.5, 2.0):
        s = await ask.sample(join_actions(parts), seed=3, max_tokens=2, temperature=noise)
        scored = await ask.engine.score(join_actions([*parts, s.actions]), sum(map(len, parts)))
        parts.append(s.actions)
        hold(bool(np.allclose(s.logp, scored.logp, atol=1e-3)), f"logp at noise {noise:g} is not what score gives.")
        hold(bool(np.allclose(s.logp, s.sampling_logprob, atol=1e-3)), "Without a hook sampling_logprob is not logp.")


async def no_noise_is_no_density(ask: LatentProbe) -> None:
    """Steps at temperature 0 repeat themselves, have no log-prob and are not trained on."""
    head = await ask.sample(seed=1, max_tokens=1)
    prefix = join_actions([ask.prompt, head.actions])
    a, b = [await ask.sample(prefix, seed=seed, temperature=0.0) for seed in (1, 2)]
    hold(np.array_equal(a.actions, b.actions), "Steps without noise differ between seeds.")
    hold(bool(np.isnan(a.sampling_logprob).all()), "A step without noise has a sampling_logprob.")
    hold(a.keep is not None and not a.keep.any(), "A step without noise may be trained on.")


async def seeds_decide(ask: LatentProbe) -> None:
    """The same seed gives the same path alone, in company, and continued at an offset."""
    alone = await ask.sample(seed=11)
    crowd = await asyncio.gather(*(ask.sample(seed=s) for s in range(40)))
    hold(np.array_equal(alone.actions, crowd[11].actions), "A seeded path changes with what else is in the batch.")
    hold(len({s.actions.tobytes() for s in crowd}) == 40, "Different seeds give the same path.")
    rest = await ask.sample(join_actions([ask.prompt, alone.actions[:3]]), seed=11, offset=3)
    hold(np.array_equal(rest.actions, alone.actions[3:]), "What continues a path draws something else.")


async def stopping_keeps_what_exists(ask: LatentProbe) -> None:
    """A stopped run keeps the steps it has made, also none, and increments add up to the sample."""
    run = ask.engine.submit(Request(ask.prompt, Sampling(seed=1)))
    run.stop()
    hold((await run).finish == "abort", "A run stopped at once did not end as aborted.")
    whole, run = await ask.sample(seed=1), ask.engine.submit(Request(ask.prompt, Sampling(seed=1)))
    parts: list[Sample] = []
    async for part in run:
        parts.append(part)
        if len(parts) == 2:
            run.stop("budget")
    got = await run
    hold(np.array_equal(np.concatenate([p.actions for p in parts]), got.actions), "Increments are not the sample.")
    hold(np.array_equal(whole.actions[: len(got.actions)], got.actions), "A stopped path is no part of the whole.")


async def what_it_cannot_do_is_refused(ask: LatentProbe) -> None:
    """Actions of another shape, stop strings and paths that are over are refused in one sentence each."""
    whole = await ask.sample(seed=2)
    for prefix, knobs, what in (
        (join_actions([ask.prompt, whole.actions]), {}, "a path that is over"),
        (join_actions([ask.prompt, whole.actions[:, :-1]]), {}, "latents of another width"),
        (ask.prompt, {"stop": ("x",)}, "a stop string"),
    ):
        try:
            await ask.sample(prefix, **knobs)
        except RolltreeError:
            continue
        raise AssertionError(f"{what} was accepted.")
    try:
        actions_of(ask.engine, "no label at all", "a prompt")
    except (RolltreeError, EngineError):
        return
    raise AssertionError("An observation that its channel does not know was accepted.")


CHECKS: tuple[Check, ...] = (
    steps_follow_their_density,
    logp_is_what_score_says,
    no_noise_is_no_density,
    seeds_decide,
    stopping_keeps_what_exists,
    what_it_cannot_do_is_refused,
)
"""What an engine of latents promises."""


def run_check(check: Check, make_engine: Callable[[], Engine], observation: Any) -> None:
    """Run one check on a fresh engine and close it; a broken promise raises AssertionError naming it."""

    async def main() -> None:
        engine = make_engine()
        try:
            await check(LatentProbe(engine, actions_of(engine, observation, "the observation")))
        finally:
            await engine.close()

    asyncio.run(main())


LATENT_CHECKS: dict[str, Callable[..., None]] = {
    getattr(check, "__name__", ""): functools.partial(run_check, check) for check in CHECKS
}
"""Checks by name; each takes what makes an engine, and an observation to go on from."""
