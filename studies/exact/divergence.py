"""Bias and noise of KL penalties' gradients, exactly; `python -m studies.exact.divergence`.

Random softmax policies over eight actions, at growing distance from a reference. One action is drawn, from π itself or
from a stale π_old; an estimator is differentiated as a loss; its mean gradient (a sum over actions) is held against the
gradient of KL(π‖π_ref), and its standard deviation is that of one draw.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from rolltree.objective.batch import Batch
from rolltree.objective.penalty import Estimator, KlPenalty

ACTIONS, PROBLEMS = 8, 25
ESTIMATORS: tuple[Estimator, ...] = ("k1", "k2", "k3")


@dataclass(frozen=True)
class Gradient:
    """Relative to the norm of the true gradient."""

    bias: float
    deviation: float
    value: float
    """Expected estimate over the true KL."""


def measure(theta: Tensor, reference: Tensor, old: Tensor, penalty: KlPenalty) -> Gradient:
    """One penalty on one softmax; actions are drawn from `old` (log-probs)."""
    theta = theta.detach().requires_grad_()
    logp = theta.log_softmax(-1)
    exact = (logp.exp() * (logp - reference)).sum()
    (true,) = torch.autograd.grad(exact, theta, retain_graph=True)
    distribution = old.exp()
    zero = torch.zeros_like(distribution)
    batch = Batch(logp, old, zero, zero, torch.ones_like(distribution), reference=reference)
    (slope,) = torch.autograd.grad(penalty(batch)[0], logp, retain_graph=True)
    scores = torch.eye(len(distribution), dtype=distribution.dtype) - logp.exp().detach()
    per_action = slope[:, None] * scores
    mean = distribution @ per_action
    spread = (distribution @ (per_action - mean).square().sum(1)).sqrt()
    estimate = torch.stack([penalty(_one(batch, a))[0] for a in range(len(distribution))])
    norm = true.norm()
    return Gradient(
        float((mean - true).norm() / norm),
        float(spread / norm),
        float((distribution @ estimate).detach() / exact.detach()),
    )


def _one(batch: Batch, action: int) -> Batch:
    cut = slice(action, action + 1)
    assert batch.reference is not None
    zero = batch.gain[cut]
    return Batch(batch.logp[cut], batch.old[cut], zero, zero, batch.weight[cut], reference=batch.reference[cut])


def table(distance: float, staleness: float) -> list[tuple[str, list[Gradient]]]:
    """Every estimator, plain and times the ratio, on many random problems."""
    g = torch.Generator().manual_seed(7)

    def near(logits: Tensor, spread: float) -> Tensor:
        return logits + spread * torch.randn(ACTIONS, generator=g, dtype=torch.float64)

    problems: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(PROBLEMS):
        theta = near(torch.zeros(ACTIONS, dtype=torch.float64), 1.0)
        reference, old = near(theta, distance).log_softmax(-1), near(theta, staleness).log_softmax(-1)
        problems.append((theta, reference, old))
    return [
        (f"{e} × r" if weighted else e, [measure(*p, KlPenalty(1.0, e, weighted=weighted)) for p in problems])
        for e in ESTIMATORS
        for weighted in (False, True)
    ]


def main(folder: Path = Path("docs/measured"), *, say: Callable[[str], object] = print) -> None:
    """Write the page."""
    parts = [
        "# Gradients of KL penalties, exactly",
        "Regenerate with `python -m studies.exact.divergence`. Medians over 25 random softmax policies of eight "
        "actions. Bias and deviation (of one draw) are relative to ‖∇KL(π‖π_ref)‖; value is the expected estimate over "
        "the true KL. `× r` multiplies the estimate by π/π_old before differentiating (`kl_weighted=True`).",
    ]
    for staleness, distribution in ((0.0, "actions drawn from π"), (0.5, "actions drawn from a stale π_old")):
        for distance in (0.1, 0.5, 1.5):
            rows = table(distance, staleness)
            parts += [
                f"## Distance {distance}, {distribution}",
                "| estimator | bias | deviation | value |\n|---|---:|---:|---:|",
            ]
            parts[-1] += "".join(f"\n| {name} | {_middle(all_of)} |" for name, all_of in rows)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "divergence.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    say(f"wrote {folder / 'divergence.md'}")


def _middle(measured: list[Gradient]) -> str:
    fields = ("bias", "deviation", "value")
    return " | ".join(f"{median(getattr(m, field) for m in measured):.2f}" for field in fields)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
