"""The adapter of diffusers, with random weights of a tiny class-conditional transformer."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from rolltree.engine.protocol import Request, Sampling
from rolltree.latents.checks import LATENT_CHECKS
from rolltree.latents.diffusers import DiffusersError, from_diffusers
from rolltree.latents.engine import LatentEngine

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed (extra diffusers)")


def tiny() -> Any:
    torch.manual_seed(0)
    transformer = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=1, out_channels=1, num_layers=1, sample_size=8,
        patch_size=2, num_embeds_ada_norm=10, norm_num_groups=1,
    )  # fmt: skip
    for p in transformer.parameters():  # freshly made, it answers zero
        torch.nn.init.normal_(p, std=0.1)
    return from_diffusers(transformer, diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0), steps=6)


@pytest.mark.parametrize("name", LATENT_CHECKS)
def test_contract(name: str) -> None:
    LATENT_CHECKS[name](lambda: LatentEngine(tiny().model), 3)


def test_without_noise_a_path_is_the_schedulers() -> None:
    loaded = tiny()
    engine = LatentEngine(loaded.model)

    async def run() -> Any:
        got = await engine.submit(Request(engine.codec.encode(4), Sampling(seed=1, temperature=0.0)))
        await engine.close()
        return got.actions

    path = asyncio.run(run())
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(6)
    x = torch.from_numpy(path[0][:64]).reshape(1, 1, 8, 8)
    for k, t in enumerate(scheduler.timesteps):
        with torch.no_grad():
            velocity = loaded.model.transformer(
                hidden_states=x, timestep=t[None], class_labels=torch.tensor([4])
            ).sample
        x = scheduler.step(velocity, t, x).prev_sample
        assert np.allclose(x.reshape(-1).numpy(), path[k + 1][:64], atol=2e-4)


def test_what_is_no_flow_model_is_refused() -> None:
    loaded = tiny()
    with pytest.raises(DiffusersError, match="DDIMScheduler is no scheduler"):
        from_diffusers(loaded.model.transformer, diffusers.DDIMScheduler())
