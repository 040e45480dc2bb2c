"""The paired objective of DiffusionNFT, with and without a coarse explorer: `python -m studies.latents.paired`.

Images are drawn without noise by the old model, graded within their group, noised again, and the model's velocities are
pulled or pushed (`rolltree.latents.paired_field`); no step has a density and none is kept. This is the base objective
of PersistWorld (S148) and the one of Sol-RL (S021), whose explorer is a copy of few bits: it denoises three times as
many seeds and the extremes are denoised again. The old model is an average that follows as in the released code:
min(0.001 · update, 0.5) of it stays (reconstructed from a summary). No reference model holds it back.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from rolltree.latents.denoiser import step
from rolltree.latents.flow import FlowNet
from rolltree.latents.paired_field import grades, paired_field
from rolltree.latents.task import probabilities
from rolltree.policy.formats import integers
from rolltree.policy.load import load_model
from rolltree.policy.precision import rounded_copy
from studies.latents.learn import interval


@dataclass(frozen=True)
class PairedStudy:
    """What to run."""

    seeds: int = 8
    updates: int = 60
    group: int = 8
    """Images of a label that are trained."""
    explore: int = 24
    """Seeds of a label that the coarse copy denoises."""
    bits: int = 4
    levels: int = 4
    """Noise levels an image is trained at in an update."""
    rate: float = 5e-4


@torch.no_grad()
def images(net: FlowNet, x: Tensor, label: Tensor) -> Tensor:
    """The images at the end of the ODE from these first latents."""
    sigmas = net.sigmas
    still = torch.zeros(len(x))
    for i in range(len(sigmas) - 1):
        index = torch.full((len(x),), i)
        x, _ = step(x, net(x, torch.full((len(x),), sigmas[i]), label), index, still, sigmas, net.eta)
    return x


def outcomes(x: Tensor, label: Tensor) -> Tensor:
    """What the classifier gives the label that was asked for."""
    seen = [probabilities(i.reshape(8, 8))[int(k)] for i, k in zip(x.numpy(), label, strict=True)]
    return torch.tensor(seen, dtype=torch.float32)


def extremes(outcome: Tensor, keep: int) -> Tensor:
    """The places of the best and of the worst."""
    ranked = outcome.argsort(descending=True)
    return torch.cat([ranked[: keep - keep // 2], ranked[len(ranked) - keep // 2 :]])


def run(study: PairedStudy, seed: int, *, explore: bool) -> tuple[float, float, int, int]:
    """Outcome before and after, and the calls of a label: of the model (a trained image counts four), of its copy."""
    torch.manual_seed(seed)
    net: Any = deepcopy(load_model("digits").model)
    net.requires_grad_(True)
    old = deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), study.rate)
    held = torch.arange(200) % 10
    first = torch.randn(200, 64)
    before = float(outcomes(images(net, first, held), held).mean())
    many = study.explore if explore else study.group
    for update in range(study.updates):
        label = torch.randint(10, (4,)).repeat_interleave(study.group)
        seeds = torch.randn(4, many, 64)
        if explore:
            coarse, told = rounded_copy(old, integers(study.bits)), label[:: study.group].repeat_interleave(many)
            rough = outcomes(images(coarse, seeds.reshape(-1, 64), told), told).reshape(4, many)
            seeds = torch.stack([s[extremes(o, study.group)] for s, o in zip(seeds, rough, strict=True)])
        x0 = images(old, seeds.reshape(-1, 64), label)
        grade = torch.cat([grades(o) for o in outcomes(x0, label).reshape(4, study.group)])
        x0, label, grade = (t.repeat_interleave(study.levels, 0) for t in (x0, label, grade))
        sigma, noise = torch.rand(len(x0)) * 0.96 + 0.02, torch.randn_like(x0)
        at = (1 - sigma[:, None]) * x0 + sigma[:, None] * noise
        with torch.no_grad():
            still = old(at, sigma, label)
        optimizer.zero_grad()
        paired_field(x0, grade, sigma, noise, net(at, sigma, label), still).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        stays = min(0.001 * update, 0.5)
        with torch.no_grad():
            for mine, new in zip(old.parameters(), net.parameters(), strict=True):
                mine.lerp_(new, 1 - stays)
    after = float(outcomes(images(net, first, held), held).mean())
    steps = len(net.sigmas) - 1
    return before, after, study.group * (steps + 4 * study.levels), many * steps * explore


def table(study: PairedStudy) -> str:
    """A row an arm."""
    rows = ["| arm | seeds | updates | calls a label and update | coarse calls | outcome before | after | gain |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, explore in (("a plain group", False), ("the extremes by a coarse copy", True)):
        made = np.array([run(study, seed, explore=explore) for seed in range(study.seeds)])
        rows.append(
            f"| {name} | {study.seeds} | {study.updates} | {made[0, 2]:.0f} | {made[0, 3]:.0f} "
            f"| {interval(made[:, 0])} | {interval(made[:, 1])} | {interval(made[:, 1] - made[:, 0])} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(tyro.cli(PairedStudy)))
