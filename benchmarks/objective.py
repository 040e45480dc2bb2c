"""Cost of every objective against a plain clipped surrogate: alone on one batch, and in a whole step of learning.

    python benchmarks/objective.py [--tokens 16384] [--repeats 7] [--threads 1] [--only NAME ...] [--json FILE]

alone   forward and backward to the log-probs of packed trees, 64 leaves each with shared prefixes
step    `Learner.step` on 16 trees of 8 leaves by a policy of about a million parameters: packing, the forwards an
        objective asks for (entropies, its statistics of the update), backward, clip and AdamW; one update

An objective and the clipped surrogate alternate, first the one and then the other, so a busy machine slows both. With
one thread it is processor time that is counted, which other programs disturb less; what they still do (caches, clock)
only ever adds, so the ratio of the least times is printed beside the median of the paired ratios. `share` is what the
objective adds by itself to a step with `clipped`: its own time less clipped's, over the step's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rolltree.credit.advantage import Advantage
from rolltree.credit.fold import expand, fold, leaf_weights
from rolltree.objective.batch import Batch, Objective, Paths
from rolltree.objective.registry import CORRECTIONS, OBJECTIVES, load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.load import load_model
from rolltree.train.backward import StepKnobs
from rolltree.train.config import Optim
from rolltree.train.step import Learner, make_optimizer
from rolltree.tree import Tree
from rolltree.tree.table import table

LEAVES, SHARED = 64, 0.25
TREES, PROMPT, GROUP, LONGEST = 16, 20, 8, 40
"""The step: prompts, their length, leaves of each, and the longest leaf."""


@dataclass(frozen=True)
class Row:
    """One objective. Times are medians in milliseconds; ratios are to the clipped surrogate."""

    objective: str
    tokens: int
    threads: int
    clipped_ms: float
    own_ms: float
    ratio_min: float
    ratio_median: float
    ratio_max: float
    step_ms: float
    step_min: float
    step_median: float
    step_max: float
    step_least: float
    """Ratio of the least times."""
    share: float
    """(own − clipped, alone at the step's number of actions) / the step with clipped."""


def packed_batch(tokens: int, seed: int = 0) -> Batch:
    """Trees of 64 leaves whose first quarter is shared, about `tokens` actions, float32 as in training."""
    g = torch.Generator().manual_seed(seed)
    own = 48
    prefix = int(own * SHARED / (1 - SHARED))
    trees = max(tokens // (LEAVES * own + prefix), 1)
    size = trees * (LEAVES * own + prefix)
    starts = torch.arange(trees)[:, None, None] * (LEAVES * own + prefix)
    heads = torch.arange(prefix).expand(trees, LEAVES, prefix)
    tails = prefix + torch.arange(LEAVES)[None, :, None] * own + torch.arange(own)
    index = (starts + torch.cat([heads, tails.expand(trees, LEAVES, own)], 2)).reshape(-1)
    count, length = trees * LEAVES, prefix + own
    path = torch.arange(count).repeat_interleave(length)
    weight = torch.full((count,), 1 / (count * length))
    advantage = torch.randn(count, generator=g)[path]
    credit = weight[path] * advantage
    zero = torch.zeros(size)
    logp = -torch.rand(size, generator=g) * 3

    def near(spread: float) -> Tensor:
        return (logp + spread * torch.randn(size, generator=g)).clamp(max=0)

    sampled = near(0.1)
    sampled[torch.rand(size, generator=g) < 0.05] = torch.nan
    return Batch(
        logp=logp.requires_grad_(),
        old=near(0.05).detach(),
        gain=zero.index_add(0, index, credit.clamp(min=0)),
        loss=zero.index_add(0, index, credit.clamp(max=0)),
        weight=zero.index_add(0, index, weight[path]),
        sampled=sampled.detach(),
        reference=near(0.2).detach(),
        entropy=torch.rand(size, generator=g).requires_grad_(),
        lag=torch.randint(0, 5, (size,), generator=g),
        previous=near(0.05).detach(),
        forced=torch.rand(size, generator=g) < 0.1,
        paths=Paths(index, path, advantage, weight, count, torch.arange(count) // LEAVES),
    )


def objectives() -> dict[str, Objective]:
    """Everything by name, each correction and penalty around the clipped surrogate."""
    named = {name: load_objective(name) for name in OBJECTIVES}
    named |= {f"clipped + {name}": load_objective("clipped", correction=name) for name in CORRECTIONS}
    named["clipped + kl + entropy"] = load_objective("clipped", kl=0.01, entropy_bonus=0.01)
    return named


def once(objective: Objective, batch: Batch) -> float:
    """Seconds of one forward and backward."""
    leaves = [x for x in (batch.logp, batch.entropy) if x is not None]
    start = _now()
    loss, _ = objective(batch)
    torch.autograd.grad(loss, leaves, allow_unused=True)
    return _now() - start


class Steps:
    """A rollout batch and a learner that can be asked for one update on it with any objective, over and over."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        forest = [Tree(f"t{i}", rng.integers(3, 99, PROMPT)) for i in range(TREES)]
        for tree in forest:
            for _ in range(GROUP):
                size = int(rng.integers(LONGEST // 4, LONGEST + 1))
                logq = rng.normal(-2, 0.1, size).astype(np.float32)
                tree.extend(
                    0, rng.integers(3, 99, size), status="done", logq=logq, version=np.zeros(size, np.int32),
                    scores={"reward": 0.0},
                )  # fmt: skip
        self.view = table(forest)
        self.advantage = Advantage(leaf=rng.normal(size=len(self.view.leaf)))
        self.weights = leaf_weights(self.view, "token")
        self.actions = int(self.view.teaching.sum())
        policy = LanguagePolicy(load_model("nano").model)
        optim = Optim(lr=1e-9)
        anchors = {name: LanguagePolicy(load_model("nano").model) for name in ("reference", "previous")}
        self.learner = Learner(policy, make_optimizer(policy, optim), optim, anchors)

    def __call__(self, objective: Objective) -> float:
        """Seconds of one step, folding included."""
        start = _now()
        folded = fold(self.view, self.advantage, self.weights)
        paths = expand(self.view, self.advantage, self.weights) if objective.level == "path" else None
        self.learner.step(objective, self.view, folded, paths, version=3, knobs=StepKnobs())
        return _now() - start


def _both(step: Steps, base: Objective, objective: Objective, *, swap: bool) -> tuple[float, float]:
    """Seconds of a step with either, in one order or the other."""
    if swap:
        own = step(objective)
        return step(base), own
    return step(base), step(objective)


def _now() -> float:
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def rows(
    tokens: int = 16384, repeats: int = 7, threads: int = 1, say: Callable[[str], object] = lambda _: None,
    only: Sequence[str] = (),
) -> list[Row]:  # fmt: skip
    """Measure every objective."""
    torch.set_num_threads(threads)
    batch, base = packed_batch(tokens), load_objective("clipped")
    lean = replace(batch, paths=None)
    step = Steps()
    step(base)
    out: list[Row] = []
    for name, objective in objectives().items():
        if only and name not in only:
            continue
        seen = batch if objective.level == "path" else lean
        once(base, lean)
        once(objective, seen)
        pairs = [(min(once(base, lean) for _ in range(3)), min(once(objective, seen) for _ in range(3)))
                 for _ in range(repeats)]  # fmt: skip
        steps = [_both(step, base, objective, swap=k % 2 == 1) for k in range(repeats)]
        ratios, whole = (sorted(own / plain for plain, own in column) for column in (pairs, steps))
        plain, own = (statistics.median(column) for column in zip(*pairs, strict=True))
        out.append(
            Row(
                objective=name, tokens=len(batch.logp), threads=threads, clipped_ms=1e3 * plain, own_ms=1e3 * own,
                ratio_min=ratios[0], ratio_median=statistics.median(ratios), ratio_max=ratios[-1],
                step_ms=1e3 * statistics.median(own for _, own in steps),
                step_min=whole[0], step_median=statistics.median(whole), step_max=whole[-1],
                step_least=min(own for _, own in steps) / min(plain for plain, _ in steps),
                share=(own - plain) * step.actions / len(batch.logp) / min(plain for plain, _ in steps),
            )
        )  # fmt: skip
        say(line(out[-1]))
    return out


def line(row: Row) -> str:
    """One row as text."""
    return (
        f"{row.objective:24} alone {row.own_ms:7.2f} ms {row.ratio_median:6.2f}× [{row.ratio_min:.2f}, "
        f"{row.ratio_max:.2f}]   step {row.step_ms:7.0f} ms {row.step_median:5.2f}× [{row.step_min:.2f}, "
        f"{row.step_max:.2f}], least {row.step_least:.2f}×   share {row.share:+.2%}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and, if asked, write it as JSON."""
    parser = argparse.ArgumentParser(description="Overhead of objectives")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=(), help="names of objectives; all unless given")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    table = rows(given.tokens, given.repeats, given.threads, print, given.only)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in table], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
