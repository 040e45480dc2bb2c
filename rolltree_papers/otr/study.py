"""What imitation forgets (OTR): a small language is learned, and then a second one.

A language is a table of next-token probabilities. The policy that is fine-tuned on the second one has shared
parameters, so that learning here costs there. Losses are the shipped objectives, gradients automatic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Objective
from rolltree.objective.registry import load_objective
from rolltree.tree.table import Floats
from studies.lab.claim import Measured

WORDS, RANK, BATCH = 24, 8, 64
"""Of the two languages: vocabulary, rank of the shared parameters, and pairs of a step."""


@dataclass(frozen=True)
class Shared:
    """logits[previous] = E[previous] · U: every context's distribution depends on what all share."""

    inner: Tensor
    outer: Tensor

    def __call__(self) -> Tensor:
        """(words, words) logits."""
        return self.inner @ self.outer


def taught(first: Floats, rng: np.random.Generator, steps: int = 600) -> Shared:
    """A policy that has learned a language from its exact probabilities."""
    start = [torch.tensor(0.3 * rng.normal(size=s)) for s in ((len(first), RANK), (RANK, len(first)))]
    policy = Shared(*(x.requires_grad_() for x in start))
    distribution, optimizer = torch.tensor(first), torch.optim.Adam(start, lr=0.03)
    for _ in range(steps):
        optimizer.zero_grad()
        (-(distribution * policy().log_softmax(-1)).sum(-1).mean()).backward()
        optimizer.step()
    return policy


def tuned(
    objective: Objective, seed: int, steps: int = 400, noise: float = 0.2, likely: list[float] | None = None
) -> list[tuple[float, float]]:
    """(fit of the second language, nats lost on the first) before each step of fine-tuning and after the last.

    The second language has other distributions in half of the contexts and its text only shows those, with a share of
    random words. Fit is the probability of the second language's likeliest words; lost is the rise of the divergence
    from the first in the contexts the text never shows. `likely` takes what each step weighed its words by on average:
    their probability, where the objective says it.
    """
    rng = np.random.default_rng([29, seed])
    first, second = (rng.dirichlet(np.full(WORDS, 0.1), WORDS) for _ in range(2))
    shown, kept = np.arange(WORDS // 2), np.arange(WORDS // 2, WORDS)
    policy = taught(first, rng)
    optimizer = torch.optim.Adam([policy.inner, policy.outer], lr=0.01)
    favourite, distribution = torch.tensor(second[shown].argmax(1)), torch.tensor(first[kept])
    out: list[tuple[float, float]] = []

    def told() -> None:
        with torch.no_grad():
            all_words = policy().log_softmax(-1)
            fit = float(all_words[torch.tensor(shown), favourite].exp().mean())
            out.append((fit, float(-(distribution * all_words[torch.tensor(kept)]).sum(-1).mean())))

    for _ in range(steps):
        told()
        context = rng.choice(shown, BATCH)
        word = np.array([rng.choice(WORDS, p=second[c]) for c in context])
        word = np.where(rng.random(BATCH) < noise, rng.integers(0, WORDS, BATCH), word)
        logits = policy()[torch.tensor(context)]
        logp = logits.log_softmax(-1)[torch.arange(BATCH), torch.tensor(word)]
        share = torch.full((BATCH,), 1 / BATCH, dtype=logp.dtype)
        batch = Batch(logp, logp.detach(), share, torch.zeros_like(share), share, logits=logits)
        optimizer.zero_grad()
        loss, said = objective(batch)
        if likely is not None and "data_probability" in said:
            likely.append(float(said["data_probability"]))
        loss.backward()
        optimizer.step()
    told()
    before = out[0][1]
    return [(fit, lost - before) for fit, lost in out]


def lost_at(curve: list[tuple[float, float]], fit: float) -> float:
    """Nats lost when a fit is first reached; at the end where it never is."""
    return next((lost for reached, lost in curve if reached >= fit), curve[-1][1])


def otr(seed: int) -> Measured:
    """One-token rollout against likelihood: nats lost on the first language when the second is half learned."""
    ways = {
        "OTR": load_objective("one_token", beta=-0.1, kappa=1.2), "likelihood": load_objective("reinforce"),
        "DFT (OTR at κ = 1, β = 0)": load_objective("one_token", beta=0.0),
    }  # fmt: skip
    weighed = {name: list[float]() for name in ways}
    curves = {name: tuned(objective, seed, likely=weighed[name]) for name, objective in ways.items()}
    start = curves["likelihood"][0][0]
    half = start + 0.5 * (min(max(fit for fit, _ in c) for c in curves.values()) - start)
    shown = {n: ([f for f, _ in c], [lost for _, lost in c]) for n, c in curves.items()}
    acted = {"policy/data_probability": float(np.mean(weighed["OTR"]))}
    return Measured(lost_at(curves["OTR"], half), lost_at(curves["likelihood"], half), shown, acted)
