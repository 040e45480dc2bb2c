"""Guided against unguided at equal denoiser calls: `python -m studies.latents.guidance`.

On digits a logistic regression of its own, fitted here on the images of scikit-learn, guides towards the label that was
asked for, and the task's classifier judges. On standard normal data the guide is a normal policy with mean 2, and what
comes out is held against the family that PGD names, N(2λ/(1 + λ), 1/(1 + λ)), at the same mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rolltree.engine.protocol import Request, Sampling
from rolltree.latents.denoiser import LatentChannel, sigmas_of
from rolltree.latents.engine import LatentEngine
from rolltree.latents.guidance import Guidance, Score
from rolltree.latents.task import probabilities
from rolltree.policy.load import load_model
from studies.lab.digits.train import images
from studies.latents.learn import interval

STRENGTHS = (0.0, 0.1, 0.3, 1.0, 3.0)
NORMAL = (0.0, 0.02, 0.05, 0.1, 0.2)


class StandardNormal(nn.Module):
    """The exact velocity of data that are standard normal."""

    eta, width, channel = 0.7, 1, LatentChannel((2, 2), 1)

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.sigmas = sigmas_of(steps, 1.0)

    def hidden(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """Of each latent one number."""
        return x[:, :1]

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """(B, 4) velocities."""
        s = sigma[:, None]
        return (2 * s - 1) * x / ((1 - s) ** 2 + s**2)


def drawn(model: Any, labels: list[int], hooks: list[Guidance]) -> tuple[np.ndarray[Any, Any], int]:
    """(n, size) images of these labels, each with its hook, and the calls that all took."""

    async def run() -> tuple[np.ndarray[Any, Any], int]:
        engine = LatentEngine(model)
        asked = [
            engine.submit(Request(engine.codec.encode(label), Sampling(seed=i, hook=hook)))
            for i, (label, hook) in enumerate(zip(labels, hooks, strict=True))
        ]
        samples = await asyncio.gather(*asked)
        await engine.close()
        return np.stack([s.actions[-1][: engine.codec.size] for s in samples]), engine.calls

    return asyncio.run(run())


def likelihood(label: int) -> Score:
    """∇ log p(label | image) of a logistic regression on all images."""
    weight, bias = _regression()

    def score(x: Tensor) -> Tensor:
        share = torch.softmax(weight @ x + bias, 0)
        return weight[label] - share @ weight

    return score


def _regression() -> tuple[Tensor, Tensor]:
    if not _FITTED:
        x, y = images()
        layer = nn.Linear(64, 10)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        optimizer = torch.optim.Adam(layer.parameters(), 0.05, weight_decay=1e-3)
        for _ in range(200):
            optimizer.zero_grad()
            nn.functional.cross_entropy(layer(x), y).backward()
            optimizer.step()
        _FITTED.extend((layer.weight.detach(), layer.bias.detach()))
    return _FITTED[0], _FITTED[1]


_FITTED: list[Tensor] = []


def digits(each: int = 24, strengths: Sequence[float] = STRENGTHS) -> str:
    """A row a strength: outcome by the task's classifier, spread among images of one label."""
    rows = ["| strength | calls an image | outcome | spread of pixels within a label |", "|---|---|---|---|"]
    net = load_model("digits").model
    labels = [label for label in range(10) for _ in range(each)]
    for strength in strengths:
        hooks = [Guidance(likelihood(label), len(net.sigmas) - 1, strength) for label in labels]
        x, calls = drawn(net, labels, hooks)
        outcomes = [float(probabilities(i.reshape(8, 8))[label]) for i, label in zip(x, labels, strict=True)]
        spread = np.mean([x[label * each : (label + 1) * each].std(0).mean() for label in range(10)])
        rows.append(f"| {strength:g} | {calls / len(x):.0f} | {interval(outcomes)} | {spread:.3f} |")
    return "\n".join(rows)


def normal(count: int = 400, steps: int = 30) -> str:
    """A row a strength: mean and deviation, and the deviation that the named family has at this mean."""
    rows = ["| strength | mean | deviation | of the named family at this mean |", "|---|---|---|---|"]
    for strength in NORMAL:
        x, _ = drawn(StandardNormal(steps), [0] * count, [Guidance(lambda x: 2 - x, steps, strength)] * count)
        mean = float(x.mean())
        named = f"{np.sqrt(1 - mean / 2):.3f}" if mean < 2 else "none"
        rows.append(f"| {strength:g} | {mean:.3f} | {float(x.std()):.3f} | {named} |")
    return "\n".join(rows)


if __name__ == "__main__":
    torch.manual_seed(0)
    print(digits(), normal(), sep="\n\n")
