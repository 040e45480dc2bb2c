"""Cost of every objective against a plain clipped surrogate on the same batch, alone and as a share of a training step.

    python benchmarks/objective.py [--tokens 16384] [--repeats 7] [--threads 1] [--json FILE]

An objective and the clipped surrogate alternate (forward and backward to the log-probs), so a busy machine slows both.
The batch is packed trees: 64 leaves per tree, prefixes shared. The training step it is compared with is the forward and
backward of a transformer of about a million parameters over the same tokens with the clipped surrogate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Objective, Paths
from rolltree.objective.registry import CORRECTIONS, OBJECTIVES, load_objective

LEAVES, SHARED, VOCABULARY = 64, 0.25, 96


@dataclass(frozen=True)
class Row:
    """One objective. Times are medians in milliseconds; `step_share` is the extra time over one training step."""

    objective: str
    tokens: int
    threads: int
    clipped_ms: float
    own_ms: float
    ratio_min: float
    ratio_median: float
    ratio_max: float
    step_share: float


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
    start = time.perf_counter()
    loss, _ = objective(batch)
    torch.autograd.grad(loss, leaves, allow_unused=True)
    return time.perf_counter() - start


def training_step(tokens: int, repeats: int) -> float:
    """Seconds of a forward and backward of a small transformer over as many tokens, rows of 256."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0, norm_first=True)
    body = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    embed, head = torch.nn.Embedding(VOCABULARY, 128), torch.nn.Linear(128, VOCABULARY)
    rows = max(tokens // 256, 1)
    ids = torch.randint(0, VOCABULARY, (rows, 256))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(256)
    parameters = [*body.parameters(), *embed.parameters(), *head.parameters()]

    def step() -> float:
        start = time.perf_counter()
        logits = head(body(embed(ids), mask=mask, is_causal=True))
        logp = logits.log_softmax(-1).gather(-1, ids[..., None]).reshape(-1)
        weight = torch.full_like(logp, 1 / len(logp)).detach()
        batch = Batch(logp, logp.detach(), weight, 0 * weight, weight)
        torch.autograd.grad(load_objective("clipped")(batch)[0], parameters)
        return time.perf_counter() - start

    step()
    return statistics.median(step() for _ in range(repeats))


def rows(
    tokens: int = 16384, repeats: int = 7, threads: int = 1, say: Callable[[str], object] = lambda _: None
) -> list[Row]:
    """Measure every objective."""
    torch.set_num_threads(threads)
    batch, base = packed_batch(tokens), load_objective("clipped")
    lean = replace(batch, paths=None)
    step = training_step(tokens, 3)
    table: list[Row] = []
    for name, objective in objectives().items():
        seen = batch if objective.level == "path" else lean
        once(base, lean), once(objective, seen)
        pairs = [(min(once(base, lean) for _ in range(3)), min(once(objective, seen) for _ in range(3)))
                 for _ in range(repeats)]  # fmt: skip
        ratios = sorted(own / plain for plain, own in pairs)
        plain, own = (statistics.median(column) for column in zip(*pairs, strict=True))
        table.append(
            Row(
                objective=name, tokens=len(batch.logp), threads=threads, clipped_ms=1e3 * plain, own_ms=1e3 * own,
                ratio_min=ratios[0], ratio_median=statistics.median(ratios), ratio_max=ratios[-1],
                step_share=(own - plain) / step,
            )
        )  # fmt: skip
        say(line(table[-1]))
    return table


def line(row: Row) -> str:
    """One row as text."""
    return (
        f"{row.objective:24} {row.own_ms:8.2f} ms   {row.ratio_median:6.2f}× clipped "
        f"[{row.ratio_min:.2f}, {row.ratio_max:.2f}]   {100 * row.step_share:+6.2f} % of a step"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and, if asked, write it as JSON."""
    parser = argparse.ArgumentParser(description="Overhead of objectives")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    table = rows(given.tokens, given.repeats, given.threads, print)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in table], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
