"""Guidance, orders of blocks, the paired objective, ranking by a coarse sampler; the sampler on exact Gaussians."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from rolltree.engine.protocol import Request, Sampling
from rolltree.latents.blocks import BlockError, BlockStep, check_order, makespan, order, staged
from rolltree.latents.engine import LatentEngine
from rolltree.latents.guidance import Guidance
from rolltree.latents.paired_field import grades, paired_field
from rolltree.latents.task import Digits
from rolltree.objective.batch import ObjectiveError
from rolltree.policy.load import load_model
from rolltree.recipe.registry import load_recipe
from rolltree.training.grow import grow
from rolltree.tree import Forest
from studies.latents.guidance import StandardNormal
from studies.latents.proxy import correlation


def _drawn(count: int, steps: int, **knobs: Any) -> np.ndarray[Any, Any]:
    async def run() -> np.ndarray[Any, Any]:
        engine = LatentEngine(StandardNormal(steps))
        asked = (engine.submit(Request(engine.codec.encode(0), Sampling(seed=s, **knobs))) for s in range(count))
        samples = await asyncio.gather(*asked)
        await engine.close()
        return np.concatenate([s.actions[-1][:4] for s in samples])

    return asyncio.run(run())


@pytest.mark.parametrize("noise", [0.0, 1.0, 2.0])
def test_any_noise_gives_the_same_images(noise: float) -> None:
    x = _drawn(200, 30, temperature=noise)
    assert abs(x.mean()) < 0.12
    assert x.std() == pytest.approx(1.0, abs=0.1)


def test_guidance_moves_the_mean_and_narrows_the_spread() -> None:
    drawn = [_drawn(80, 30, hook=Guidance(lambda x: 2 - x, 30, strength)) for strength in (0.0, 0.04, 0.2)]
    means, spreads = [float(x.mean()) for x in drawn], [float(x.std()) for x in drawn]
    assert means[0] < means[1] < means[2] < 2.1
    assert spreads[2] < 0.7 * spreads[0]
    still = torch.zeros(4)
    assert torch.equal(Guidance(lambda x: 0 * x, 10)([0], still), still)
    assert torch.equal(Guidance(lambda x: x + 1, 10)([0] * 10, still), still)
    assert Guidance(lambda x: x, 10).weight(0) == pytest.approx(1 + 0.3 * np.sin(np.pi / 10))


def test_orders_of_blocks_and_steps() -> None:
    for by in ("blocks", "steps"):
        check_order(order(4, 3, by), 3, by)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BlockError, match="step 0 of block 1 stands before step 2 of block 0"):
        check_order(order(4, 3, "steps"), 3, "blocks")
    with pytest.raises(BlockError):
        check_order([BlockStep(0, 1)], 3, "steps")
    assert makespan(7, 4, "steps", 4) == 7 + 4 - 1
    assert makespan(7, 4, "blocks", 4) == 7 * 4
    assert makespan(7, 4, "steps", 1) == 28
    assert staged(3, [4, 1, 5], 2, 2) == 2 * (2 + 1 + 3)
    with pytest.raises(BlockError, match="one number"):
        staged(2, [1], 1, 1)


def test_the_paired_objective_shifts_the_mean_by_the_grades() -> None:
    torch.manual_seed(0)
    x0, noise, sigma = torch.randn(64, 3), torch.randn(64, 3), torch.rand(64) * 0.8 + 0.1
    grade = grades(x0[:, 0])
    theta = torch.zeros(64, 3, requires_grad=True)
    loss = paired_field(x0, grade, sigma, noise, theta, theta.detach(), weighted=False)
    loss.backward()
    at = (1 - sigma[:, None]) * x0 + sigma[:, None] * noise
    wanted = -2 * 5.0 * sigma[:, None] * ((2 * grade - 1)[:, None] * (at - x0)) / x0.numel()
    assert theta.grad is not None
    assert torch.allclose(theta.grad, wanted, atol=1e-6)
    even = torch.full((64,), 0.5)
    theta.grad = None
    paired_field(x0, even, sigma, noise, theta, theta.detach(), mix=0.3).backward()
    assert theta.grad is not None
    assert float(theta.grad.abs().max()) < 1e-6
    with pytest.raises(ObjectiveError, match="two samples"):
        grades(torch.ones(1))
    with pytest.raises(ObjectiveError, match=r"\[0, 1\]"):
        paired_field(x0, x0[:, 0] * 9, sigma, noise, theta, theta)


def test_seeds_keep_their_rank_without_noise_and_lose_it_with_fresh_noise() -> None:
    assert correlation(6, 0.0, "symmetric", 3) > 0.8
    assert correlation(6, 1.5, "symmetric", 3) < 0.6


@pytest.mark.papers("flow_grpo", "sol_rl")
def test_the_best_and_worst_of_many_differ_more_than_a_plain_group() -> None:
    """What exploration is for: at equal images of the policy's own, outcomes are further apart."""
    loaded = load_model("digits")
    chosen = grow(load_recipe("sol_rl", explore=24, keep=6), loaded, Digits("symmetric"), items=6)
    plain = grow(load_recipe("flow_grpo", group=6, noise=0.3), loaded, Digits("symmetric"), items=6)

    def spread(forest: Forest) -> float:
        return float(np.mean([np.std([n.scores["reward"] for n in t.leaves() if n.status == "done"]) for t in forest]))

    assert spread(chosen) > 1.2 * spread(plain)
