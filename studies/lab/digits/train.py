"""Make the flow model and the judges of the task `digits`: `python -m studies.lab.digits.train --out FOLDER`.

The data are the 1,797 images of 8 × 8 pixels that scikit-learn brings (extra `digits`). The flow model regresses the
velocity of straight paths from noise to data. Half of its labels are wrong on purpose, so that it often draws another
digit than the one asked for: that is what reinforcement learning has to mend. The classifier learns noisy and shifted
images with the true labels and is tested on a fifth of the images; the preference head learns from pairs, of which the
image with more ink near the middle is preferred (nine times in ten).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn

from rolltree.errors import RolltreeError
from rolltree.latents.denoiser import step
from rolltree.latents.flow import FlowNet, FlowSpec

HELD = 5
"""One image in so many is held out for the classifier's test."""


@dataclass(frozen=True)
class DigitSettings:
    """How the model is made."""

    out: Path
    """Folder for config.json, model.safetensors, judges.npz and made.json."""
    updates: int = 9000
    batch: int = 256
    rate: float = 2e-3
    wrong: float = 0.5
    """Share of labels that are drawn at random."""
    average: float = 0.999
    """Of the moving average of weights, which is what is kept."""
    width: int = 192
    blocks: int = 3
    seed: int = 0


def images() -> tuple[Tensor, Tensor]:
    """(1797, 64) pixels from −1 to 1, and labels."""
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError as error:
        raise RolltreeError("the digits come with scikit-learn; install rolltree[digits]") from error
    found: Any = load_digits()
    return torch.from_numpy(found.data.astype(np.float32) / 8 - 1), torch.from_numpy(found.target.astype(np.int64))


def shifted(x: Tensor, draw: torch.Generator) -> Tensor:
    """Images moved by up to one pixel."""
    square = x.reshape(-1, 8, 8)
    wide = nn.functional.pad(square, (1, 1, 1, 1), value=-1.0)
    dx, dy = (int(torch.randint(0, 3, (1,), generator=draw)) for _ in range(2))
    return wide[:, dy : dy + 8, dx : dx + 8].reshape(-1, 64)


def train_flow(x: Tensor, label: Tensor, s: DigitSettings) -> FlowNet:
    """Regress velocities; the moving average of the weights."""
    torch.manual_seed(s.seed)
    draw = torch.Generator().manual_seed(s.seed)
    net = FlowNet(FlowSpec(width=s.width, blocks=s.blocks))
    kept = FlowNet(net.spec)
    kept.load_state_dict(net.state_dict())
    optimizer = torch.optim.AdamW(net.parameters(), lr=s.rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, s.rate, s.updates, pct_start=0.05)
    for update in range(s.updates):
        at = torch.randint(len(x), (s.batch,), generator=draw)
        clean, asked = x[at], label[at].clone()
        wrong = torch.rand(s.batch, generator=draw) < s.wrong
        asked[wrong] = torch.randint(10, (int(wrong.sum()),), generator=draw)
        # As many draws near noise as the shifted levels of the sampler have steps there.
        t = torch.rand(s.batch, generator=draw)
        sigma = net.spec.shift * t / (1 + (net.spec.shift - 1) * t)
        noise = torch.randn(clean.shape, generator=draw)
        x_t = (1 - sigma[:, None]) * clean + sigma[:, None] * noise
        loss = (net(x_t, sigma, asked) - (noise - clean)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        share = min(s.average, (1 + update) / (10 + update))
        with torch.no_grad():
            for mean, now in zip(kept.parameters(), net.parameters(), strict=True):
                mean.lerp_(now, 1 - share)
    return kept.eval()


def train_classifier(x: Tensor, label: Tensor, seed: int) -> tuple[dict[str, Any], float]:
    """A network of one hidden layer on noisy, shifted images; its weights, and its accuracy on held-out images."""
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    test = torch.arange(len(x)) % HELD == 0
    net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    mine, known = x[~test], label[~test]
    for _ in range(2500):
        at = torch.randint(len(mine), (256,), generator=draw)
        seen = shifted(mine[at], draw) if torch.rand(1, generator=draw) < 0.5 else mine[at]
        seen = seen + 0.25 * torch.randn(seen.shape, generator=draw)
        loss = nn.functional.cross_entropy(net(seen.clamp(-1, 1)), known[at])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = float((net(x[test]).argmax(-1) == label[test]).float().mean())
    w = [p.detach().numpy() for p in net.parameters()]
    return {"w1": w[0].T, "b1": w[1], "w2": w[2].T, "b2": w[3]}, right


def train_preference(x: Tensor, seed: int) -> tuple[dict[str, Any], float]:
    """A Bradley–Terry head on the pixels, from pairs; its weights, and how often it orders held-out pairs as judged."""
    draw = torch.Generator().manual_seed(seed)
    middle = torch.zeros(8, 8)
    middle[2:6, 2:6] = 1.0
    worth = (x + 1).mul(middle.reshape(-1)).sum(-1) - 0.5 * (x + 1).mul(1 - middle.reshape(-1)).sum(-1)
    test = torch.arange(len(x)) % HELD == 0
    pool, held = torch.nonzero(~test).squeeze(1), torch.nonzero(test).squeeze(1)
    weight = torch.zeros(64, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=2e-2)
    for _ in range(800):
        a, b = (pool[torch.randint(len(pool), (512,), generator=draw)] for _ in range(2))
        better = (worth[a] > worth[b]).float()
        flip = torch.rand(512, generator=draw) < 0.1
        better[flip] = 1 - better[flip]
        fit = nn.functional.binary_cross_entropy_with_logits((x[a] - x[b]) @ weight, better)
        loss = fit + 1e-3 * weight.square().sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    w = weight.detach()
    a, b = (held[torch.randint(len(held), (4000,), generator=draw)] for _ in range(2))
    right = float((((x[a] - x[b]) @ w > 0) == (worth[a] > worth[b])).float().mean())
    return {"prefer": w.numpy(), "prefer_bias": np.array([-float((x @ w).mean())], np.float32)}, right


@torch.no_grad()
def drawn(net: FlowNet, label: Tensor, noise: float, seed: int) -> Tensor:
    """Images for labels, with the sampler's steps at one noise."""
    draw = torch.Generator().manual_seed(seed)
    x, sigmas = torch.randn(len(label), 64, generator=draw), net.sigmas
    for k in range(net.spec.steps):
        index = torch.full((len(label),), k)
        mean, std = step(
            x, net(x, torch.tensor(sigmas)[index], label), index, torch.full((len(label),), noise), sigmas, net.spec.eta
        )
        x = mean + std[:, None] * torch.randn(x.shape, generator=draw)
    return x


def main(s: DigitSettings) -> None:
    """Train, test, write."""
    began = time.monotonic()
    x, label = images()
    net = train_flow(x, label, s)
    judge, right = train_classifier(x, label, s.seed)
    prefer, ordered = train_preference(x, s.seed)
    net.save_pretrained(s.out)
    np.savez(s.out / "judges.npz", **{k: v.astype(np.float32) for k, v in {**judge, **prefer}.items()})
    asked = torch.arange(2000) % 10
    told: dict[str, Any] = {"classifier_right": right, "preference_right": ordered, "seconds": time.monotonic() - began}
    for noise in (0.0, 0.5, 1.0, 2.0):
        got = drawn(net, asked, noise, 1).clamp(-1, 1).numpy()
        logits = np.maximum(got @ judge["w1"] + judge["b1"], 0) @ judge["w2"] + judge["b2"]
        e = np.exp(logits - logits.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        told[f"asked_noise_{noise:g}"] = float((p.argmax(-1) == asked.numpy()).mean())
        told[f"clear_noise_{noise:g}"] = float(p.max(-1).mean())
        told[f"ink_noise_{noise:g}"] = float(got.mean())
    told["ink_data"] = float(x.mean())
    told["settings"] = {f.name: getattr(s, f.name) for f in fields(s) if f.name != "out"}
    (s.out / "made.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main(tyro.cli(DigitSettings))
