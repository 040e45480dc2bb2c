"""Cost of every objective against a plain clipped surrogate: alone on one batch, and in a whole step of learning.

    python benchmarks/objective.py [--tokens 16384] [--blocks 12] [--threads 1] [--only NAME ...] [--json FILE]

alone   forward and backward to the log-probs of packed trees, 64 leaves each with shared prefixes
step    `Learner.step` on 16 trees of 8 leaves by a policy of about a million parameters: packing, the forwards an
        objective asks for (entropies, its statistics of the update), backward, clip and AdamW; one update

An objective and the clipped surrogate are timed in blocks of four: clipped, own, own, clipped, and the other way round
in every second block. A block is one ratio, (own + own) / (clipped + clipped), from which whatever grows evenly while
it lasts (a clock, a cache, another program) cancels. Reported are the median of the ratios, the interval that covers
the true median in 95 of 100 such measurements whatever the noise looks like (order statistics), and the range. Two
rows tell what the reading itself is worth: `clipped` against itself, and `pairwise, reference known`, which does
without the forward pass of the reference. With one thread it is processor time that is counted.
`share` is what the objective adds by itself to a step with `clipped`: its own time less clipped's, over the step's.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from machine import clock, save
from torch import Tensor

from rolltree.credit.advantage import Advantage
from rolltree.credit.fold import expand, fold, leaf_weights
from rolltree.objective.batch import Batch, Objective, Paths
from rolltree.objective.named import CORRECTIONS
from rolltree.objective.registry import OBJECTIVES, load_objective
from rolltree.policy.language import LanguagePolicy, PolicyRead
from rolltree.policy.load import load_model
from rolltree.policy.packed import Packed
from rolltree.training.backward import StepKnobs
from rolltree.training.config import Optim
from rolltree.training.memory import keep_freed
from rolltree.training.optimizer import make_optimizer
from rolltree.training.step import Learner
from rolltree.tree import Tree
from rolltree.tree.table import table

LEAVES, SHARED = 64, 0.25
TREES, PROMPT, GROUP, LONGEST = 16, 20, 8, 40
"""The step: prompts, their length, leaves of each, and the longest leaf."""


@dataclass(frozen=True)
class Ratios:
    """Ratios of blocks."""

    median: float
    low: float
    """Ends of the 95 % interval of the median."""
    high: float
    least: float
    most: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratios:
        """What some blocks say."""
        x, cut = sorted(ratios), 0
        while 2 * sum(math.comb(len(x), k) for k in range(cut + 2)) / 2 ** len(x) <= 0.05:
            cut += 1
        return cls(statistics.median(x), x[cut], x[-1 - cut], x[0], x[-1])

    def __str__(self) -> str:
        return f"{self.median:5.3f}× ({self.low:.3f} to {self.high:.3f}) [{self.least:.2f}, {self.most:.2f}]"


@dataclass(frozen=True)
class Row:
    """One objective. Times are medians in milliseconds; ratios are to the clipped surrogate."""

    objective: str
    tokens: int
    threads: int
    blocks: int
    flat: float
    """Share of the step's groups without any advantage."""
    clipped_ms: float
    own_ms: float
    alone: Ratios
    step_ms: float
    step: Ratios
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


def objectives() -> dict[str, tuple[Objective, bool]]:
    """Everything by name, each correction and penalty around the clipped surrogate; whether anchors are known."""
    named = {name: load_objective(name) for name in OBJECTIVES.names()}
    named |= {f"clipped + {name}": load_objective("clipped", correction=name) for name in CORRECTIONS.names()}
    named["clipped + kl"] = load_objective("clipped", kl=0.01)
    named["clipped + entropy"] = load_objective("clipped", entropy_bonus=0.01)
    known = {f"{name}, reference known": named[name] for name in ("pairwise", "clipped + kl")}
    return {name: (made, name in known) for name, made in (named | known).items()}


def once(objective: Objective, batch: Batch) -> float:
    """Seconds of one forward and backward."""
    leaves = [x for x in (batch.logp, batch.entropy) if x is not None]
    start = clock()
    loss, _ = objective(batch)
    torch.autograd.grad(loss, leaves, allow_unused=True)
    return clock() - start


class Remembered(LanguagePolicy):
    """A fixed policy that reads a row once and remembers it: leaves out what an anchor's forward pass costs."""

    def __init__(self, policy: LanguagePolicy) -> None:
        super().__init__(policy.model)
        self.known: dict[bytes, PolicyRead] = {}

    def read(self, packed: Packed, *, entropy: bool = False, logits: bool = False, watch: bool = False) -> PolicyRead:
        """The same answer for the same row."""
        key = packed.tokens.tobytes()
        if key not in self.known:
            self.known[key] = super().read(packed, entropy=entropy, logits=logits, watch=watch)
        return self.known[key]


class Steps:
    """A rollout batch and a learner that can be asked for one update on it with any objective, over and over."""

    def __init__(self, flat: float = 0.0) -> None:
        rng = np.random.default_rng(0)
        forest = [Tree(f"t{i}", rng.integers(3, 99, PROMPT)) for i in range(TREES)]
        for tree in forest:
            for _ in range(GROUP):
                size = int(rng.integers(LONGEST // 4, LONGEST + 1))
                sampling_logprob = rng.normal(-2, 0.1, size).astype(np.float32)
                tree.extend(
                    0,
                    rng.integers(3, 99, size),
                    status="done",
                    sampling_logprob=sampling_logprob,
                    version=np.zeros(size, np.int32),
                    scores={"reward": 0.0},
                )
        self.view = table(forest)
        taught = self.view.leaf_tree >= round(flat * TREES)
        self.advantage = Advantage(leaf=rng.normal(size=len(self.view.leaf)) * taught)
        self.weights = leaf_weights(self.view, "token")
        self.actions = int(self.view.loss_tokens.sum())
        self.learner = self._learner(lambda policy: policy)
        self.known = self._learner(Remembered)

    def _learner(self, anchor: Callable[[LanguagePolicy], LanguagePolicy]) -> Learner:
        policy = LanguagePolicy(load_model("nano").model)
        optim = Optim(lr=1e-9)
        anchors = {name: anchor(LanguagePolicy(load_model("nano").model)) for name in ("reference", "previous")}
        return Learner(policy, make_optimizer(policy, optim), optim, anchors)

    def __call__(self, objective: Objective, *, known: bool = False) -> float:
        """Seconds of one step, folding included; `known`: what the anchors say is known already."""
        start = clock()
        folded = fold(self.view, self.advantage, self.weights)
        paths = expand(self.view, self.advantage, self.weights) if objective.level == "path" else None
        learner = self.known if known else self.learner
        learner.step(objective, self.view, folded, paths, version=3, knobs=StepKnobs())
        return clock() - start


Timed = Callable[[], float]


def compared(plain: Timed, own: Timed, blocks: int) -> tuple[list[float], list[float], Ratios]:
    """Seconds of both sides in blocks of four, and the ratios of the blocks."""
    sides: tuple[list[float], list[float]] = ([], [])
    ratios: list[float] = []
    for block in range(blocks):
        order = (0, 1, 1, 0) if block % 2 == 0 else (1, 0, 0, 1)
        took = [(side, (own if side else plain)()) for side in order]
        for side, seconds in took:
            sides[side].append(seconds)
        ratios.append(sum(t for side, t in took if side) / sum(t for side, t in took if not side))
    return *sides, Ratios.of(ratios)


def rows(
    tokens: int = 16384, blocks: int = 12, threads: int = 1, say: Callable[[str], object] = lambda _: None,
    only: Sequence[str] = (), flat: float = 0.0,
) -> list[Row]:  # fmt: skip
    """Measure every objective."""
    torch.set_num_threads(threads)
    clock.kind = "cpu" if threads == 1 else "wall"
    keep_freed()
    batch, base = packed_batch(tokens), load_objective("clipped")
    lean = replace(batch, paths=None)
    step = Steps(flat)
    out: list[Row] = []
    for name, (objective, known) in objectives().items():
        if only and name not in only:
            continue
        seen = batch if objective.level == "path" else lean
        for _ in range(2):
            once(base, lean)
            once(objective, seen)
            step(base)
            step(objective, known=known)
        plain, mine, alone = compared(
            lambda: min(once(base, lean) for _ in range(5)),
            lambda o=objective, b=seen: min(once(o, b) for _ in range(5)), blocks,
        )  # fmt: skip
        whole, with_it, steps = compared(
            lambda: step(base), lambda o=objective, k=known: step(o, known=k), blocks
        )  # fmt: skip
        own_ms, clipped_ms = (1e3 * statistics.median(column) for column in (mine, plain))
        added = (own_ms - clipped_ms) * step.actions / len(batch.logp)
        out.append(
            Row(
                objective=name, tokens=len(batch.logp), threads=threads, blocks=blocks, flat=flat,
                clipped_ms=clipped_ms, own_ms=own_ms, alone=alone, step_ms=1e3 * statistics.median(with_it), step=steps,
                share=added / 1e3 / statistics.median(whole),
            )
        )  # fmt: skip
        say(line(out[-1]))
    return out


def line(row: Row) -> str:
    """One row as text."""
    return (
        f"{row.objective:26} alone {row.own_ms:6.2f} ms {row.alone.median:5.2f}×   step {row.step_ms:6.0f} ms "
        f"{row.step}   share {row.share:+.2%}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and, if asked, write it with the machine it was measured on."""
    parser = argparse.ArgumentParser(description="Overhead of objectives")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--blocks", type=int, default=12, help="of four timings; 6 are the fewest that bound a median")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=(), help="names of objectives; all unless given")
    parser.add_argument("--flat", type=float, default=0.0, help="share of groups without any advantage, in a step")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if given.blocks < 6:
        parser.error(f"--blocks {given.blocks} bounds no median at 95 %; give 6 or more")
    save(given.json, rows(given.tokens, given.blocks, given.threads, print, given.only, given.flat))


if __name__ == "__main__":
    main()
