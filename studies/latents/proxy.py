"""How well a copy of few bits ranks seeds for the policy: `python -m studies.latents.proxy`.

The copy denoises 96 first latents without noise, the policy the same ones with more and more. A cell is Spearman's rank
correlation of the outcomes, mean over three labels (Sol-RL, S021: the ranking holds where the seed fixes the image).
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from rolltree.engine.protocol import Request, Sampling
from rolltree.latents.engine import LatentEngine
from rolltree.latents.task import Digits
from rolltree.policy.formats import integers
from rolltree.policy.load import load_model
from rolltree.policy.precision import rounded_copy
from rolltree.task.protocol import Item
from rolltree.tree.node import join_actions

NOISES = (0.0, 0.15, 0.3, 0.5, 1.0)


def outcomes(model: Any, noise: float, shift: int, reward: str, label: int, seeds: int = 96) -> list[float]:
    """Outcomes of the same first latents; `shift` makes the noise behind them another."""

    async def run() -> list[float]:
        engine, task = LatentEngine(model), Digits(reward)
        prompt = engine.codec.encode(label)
        first = (engine.submit(Request(prompt, Sampling(max_tokens=1, seed=s))) for s in range(seeds))
        paths = [join_actions([prompt, sample.actions]) for sample in await asyncio.gather(*first)]
        draws = (Sampling(seed=1000 * shift + s, temperature=noise) for s in range(seeds))
        made = await asyncio.gather(*(engine.submit(Request(p, d)) for p, d in zip(paths, draws, strict=True)))
        item = Item("seed", label, label)
        told = [await task.verify(item, None, engine.codec.decode(m.actions)) for m in made]
        await engine.close()
        return [verdict.score for verdict in told]

    return asyncio.run(run())


def correlation(bits: int, noise: float, reward: str, label: int) -> float:
    """Of the copy's ranking with the policy's."""
    net = load_model("digits").model
    coarse, fine = (
        outcomes(rounded_copy(net, integers(bits)), 0.0, 1, reward, label),
        outcomes(net, noise, 2, reward, label),
    )
    return float(spearmanr(coarse, fine).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def table() -> str:
    """A row a reward and number of bits."""
    rows = ["| reward | bits | " + " | ".join(f"noise {n:g}" for n in NOISES) + " |", "|---" * (2 + len(NOISES)) + "|"]
    for reward in ("label", "symmetric"):
        for bits in (3, 4, 6):
            cells = (np.mean([correlation(bits, n, reward, label) for label in (1, 3, 8)]) for n in NOISES)
            rows.append(f"| {reward} | {bits} | " + " | ".join(f"{c:.2f}" for c in cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
