"""The engine of latents: its contract, and what must break it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rolltree.engine.protocol import EngineError, Request, Sample, Sampling
from rolltree.errors import ModelError
from rolltree.generate.branches import Branches
from rolltree.latents.checks import LATENT_CHECKS
from rolltree.latents.engine import LatentEngine
from rolltree.latents.policy import FlowPolicy
from rolltree.policy.packed import pack
from rolltree.tree.node import join_actions
from rolltree.tree.table import table
from tests.latents.tiny import grown, tiny_engine, tiny_net


@pytest.mark.parametrize("name", LATENT_CHECKS)
def test_contract(name: str) -> None:
    LATENT_CHECKS[name](tiny_engine, 3)


class FourfoldNoise(LatentEngine):
    """Draws with four times the noise that it reports, as published code does."""

    def _draw(self, runs: list[Any]) -> Any:
        noises = {id(run): run.request for run in runs}
        for run in runs:
            louder = replace(run.request.sampling, temperature=4 * run.request.sampling.temperature)
            run.request = replace(run.request, sampling=louder)
        drawn = super()._draw(runs)
        for run in runs:
            run.request = noises[id(run)]
        noise = np.array([self._noise(run) for run in runs], np.float32)
        rows = [(run.latent, run.made, run.label, float(n)) for run, n in zip(runs, noise, strict=True)]
        mean, std = self._means(rows)
        x = torch.from_numpy(drawn.latent)
        told = -0.5 * ((x - mean) / std.clamp(min=1e-9)[:, None]).square().sum(-1) - 64 * (std.log() + 0.9189385)
        return replace(drawn, noise=noise, logp=told.numpy(), sampled=told.numpy())


def test_noise_that_is_not_reported_breaks_the_contract() -> None:
    with pytest.raises(AssertionError, match="do not follow the density"):
        LATENT_CHECKS["steps_follow_their_density"](lambda: FourfoldNoise(tiny_net()), 3)


def _ratios(engine: LatentEngine) -> list[np.ndarray[Any, Any]]:
    """Per step, π'/π of many draws, π' being a policy a little aside."""
    other = tiny_net()
    torch.manual_seed(1)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.005 * torch.randn_like(p))

    async def draw() -> list[Sample]:
        prompt = engine.codec.encode(2)
        return await asyncio.gather(*(engine.submit(Request(prompt, Sampling(seed=s))) for s in range(500)))

    samples = asyncio.run(draw())
    aside = LatentEngine(other)
    out: list[np.ndarray[Any, Any]] = []

    async def score() -> None:
        prompt = engine.codec.encode(2)
        told = [await aside.score(join_actions([prompt, s.actions]), 1) for s in samples]
        for k in range(1, engine.steps):
            out.append(np.exp([float(t.logp[k] - s.logp[k]) for t, s in zip(told, samples, strict=True)]))

    asyncio.run(score())
    return out


def _off(ratios: np.ndarray[Any, Any]) -> float:
    return float(abs(ratios.mean() - 1) / (ratios.std() / np.sqrt(len(ratios))))


def test_ratios_are_one_on_average_at_every_step_but_not_where_noise_is_misreported() -> None:
    fair = [_off(r) for r in _ratios(tiny_engine())]
    assert max(fair) < 4
    false = [_off(r) for r in _ratios(FourfoldNoise(tiny_net()))]
    assert max(false) > 5


def test_the_trainer_reads_the_engines_densities() -> None:
    view = table(grown(Branches((1, 3), first=2), 2))
    packed = pack(view, view.loss_mask)
    read = FlowPolicy(tiny_net()).read(packed, entropy=True)
    assert np.allclose(read.logp.detach().numpy(), view.flat("logp")[packed.action], atol=1e-3)
    assert read.entropy is not None
    assert torch.isfinite(read.entropy).all()


def test_the_engine_computes_in_float32_whatever_the_model_is_in() -> None:
    async def run(engine: LatentEngine) -> Sample:
        sample = await engine.submit(Request(engine.codec.encode(1), Sampling(seed=1)))
        await engine.close()
        return sample

    fine, plain = tiny_net().double(), tiny_net()
    made, wanted = asyncio.run(run(LatentEngine(fine))), asyncio.run(run(LatentEngine(plain)))
    assert np.array_equal(made.actions, wanted.actions)
    assert next(fine.parameters()).dtype == torch.float64


def test_a_step_without_noise_is_refused_by_the_trainer() -> None:
    view = table(grown(Branches(first=2)))
    for node in view.nodes:
        node.keep = None
    packed = pack(table(view.trees), np.repeat(view.trainable, view.length))
    with pytest.raises(ModelError, match="no density"):
        FlowPolicy(tiny_net()).read(packed)


def test_guidance_moves_the_mean_and_is_booked() -> None:
    def aside(generated: Sequence[Any], logits: Any) -> Any:
        return logits + 0.05

    async def run() -> Sample:
        engine = tiny_engine()
        knobs = Sampling(seed=1, hook=aside)
        try:
            return await engine.submit(Request(engine.codec.encode(1), knobs))
        finally:
            await engine.close()

    s = asyncio.run(run())
    assert (s.logp[1:5] != s.sampling_logprob[1:5]).all()
    assert np.isfinite(s.sampling_logprob[1:5]).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, StopIteration, ValueError])
def test_a_hook_that_raises_anything_ends_its_own_run_and_no_other(error: type[BaseException]) -> None:
    def raising(generated: Sequence[Any], mean: Any) -> Any:
        raise error

    assert error.__name__ in _beside(raising)


@pytest.mark.parametrize(
    ("hook", "told"), [(lambda s, mean: mean[:-1], "shape"), (lambda s, mean: mean * np.nan, "NaN"),
                       (lambda s, mean: "x", "Error")],
)  # fmt: skip
def test_a_hook_that_returns_no_mean_is_an_engine_error(hook: Any, told: str) -> None:
    assert told in _beside(hook)


def _beside(hook: Any) -> str:
    """What a run with a hook ends with; one beside it comes to what it comes to alone."""

    async def both() -> str:
        engine = tiny_engine()
        asked = Request(engine.codec.encode(1), Sampling(seed=1))
        alone = await engine.submit(asked)
        bad = engine.submit(Request(engine.codec.encode(1), Sampling(seed=1, hook=hook)))
        good = await asyncio.wait_for(engine.submit(asked), 300)
        assert (good.actions == alone.actions).all()
        with pytest.raises(EngineError) as failed:
            await asyncio.wait_for(bad, 300)
        await engine.close()
        return str(failed.value)

    return asyncio.run(both())


def test_a_denoiser_that_breaks_anywhere_ends_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        engine = tiny_engine()
        monkeypatch.setattr(LatentEngine, "_guess", lambda *_: 1 // 0)
        asked = Request(engine.codec.encode(1), Sampling(seed=1, max_tokens=2), frozenset({"hidden"}))
        got = await asyncio.wait_for(asyncio.gather(*map(engine.submit, [asked, asked]), return_exceptions=True), 300)
        assert all(isinstance(each, ZeroDivisionError) for each in got)
        none = await engine.submit(Request(engine.codec.encode(1), Sampling(seed=1, max_tokens=0)))
        assert (len(none.actions), none.finish) == (0, "length")

    asyncio.run(run())
