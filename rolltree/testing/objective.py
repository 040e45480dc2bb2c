"""Checks that any objective must pass; run them on your own with `check_objective(my_objective)`.

They use random packed trees, folded (each action once) and written out (every path on its own), in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import OPTIONAL, Batch, Objective, Paths, fit, need


@dataclass(frozen=True)
class Pair:
    """The same rollouts twice: each action once, and every path written out."""

    folded: Batch
    flat: Batch


def random_pair(
    seed: int, *, drift: float = 0.5, missing: float = 0.0, one_advantage: bool = False, vocabulary: int = 5
) -> Pair:
    """Two random trees with unequal leaf weights and every optional field.

    `drift` is the spread of log-probs between the policies, `missing` the share of actions without a sampling
    probability, and `one_advantage` gives all actions of a path the same advantage.
    """
    rng = np.random.default_rng(seed)
    runs, groups, size = _random_trees(rng)
    index = torch.tensor([action for run in runs for action in run], dtype=torch.int64)
    path = torch.tensor([leaf for leaf, run in enumerate(runs) for _ in run], dtype=torch.int64)
    weight = torch.tensor(rng.uniform(0.2, 1.0, len(runs)))
    weight = weight / weight[path].sum()
    advantage = torch.tensor(rng.normal(size=len(runs)))[path]
    if not one_advantage:
        advantage = advantage + 0.7 * torch.tensor(rng.normal(size=len(path)))
    paths = Paths(index, path, advantage, weight, len(runs), torch.tensor(groups))
    logits = torch.tensor(1.5 * rng.normal(size=(size, vocabulary)))
    logp = logits.log_softmax(-1)[torch.arange(size), torch.tensor(rng.integers(0, vocabulary, size))]

    def near(spread: float) -> Tensor:
        return (logp + spread * torch.tensor(rng.normal(size=size))).clamp(max=0)

    sampled = near(drift)
    sampled[torch.tensor(rng.random(size) < missing)] = torch.nan
    credit = paths.entry_weight * advantage
    zero = torch.zeros(size, dtype=torch.float64)
    folded = Batch(
        logp=logp.clone().requires_grad_(),
        old=near(drift),
        gain=zero.index_add(0, index, credit.clamp(min=0)),
        loss=zero.index_add(0, index, credit.clamp(max=0)),
        weight=zero.index_add(0, index, paths.entry_weight),
        sampled=sampled,
        reference=near(drift),
        entropy=torch.tensor(rng.exponential(0.7, size)).requires_grad_(),
        staleness=torch.tensor(rng.integers(-1, 5, size)),
        previous=near(drift / 2),
        ewma=near(drift / 2),
        forced=torch.tensor(rng.random(size) < 0.2),
        logits=logits.requires_grad_(),
        paths=paths,
    )
    return Pair(folded, write_out(folded))


def write_out(batch: Batch) -> Batch:
    """Every path's actions on their own: nothing is shared, each channel holds one advantage. Gradients flow back."""
    paths = batch.paths
    if paths is None:
        raise ObjectiveError("only a batch with paths can be written out")
    credit = paths.entry_weight * paths.advantage

    def taken(name: str) -> Tensor | None:
        values = getattr(batch, name)
        return None if values is None else values[paths.index]

    return replace(
        batch,
        logp=batch.logp[paths.index],
        old=batch.old[paths.index],
        gain=credit.clamp(min=0),
        loss=credit.clamp(max=0),
        weight=paths.entry_weight,
        paths=replace(paths, index=torch.arange(len(paths.index), device=paths.index.device)),
        **{name: taken(name) for name in sorted(OPTIONAL - {"group"})},
    )


def gradients(objective: Objective, batch: Batch, of: Batch | None = None) -> tuple[Tensor, list[Tensor]]:
    """The loss and its gradient with respect to `logp`, `entropy` and `logits` of a batch (zeros where unused)."""
    source = batch if of is None else of
    inputs = [x for x in (source.logp, source.entropy, source.logits) if x is not None and x.requires_grad]
    loss, _ = objective(batch)
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return loss, [_or_zeros(x, g) for x, g in zip(inputs, found, strict=True)]


def check_scalar(objective: Objective) -> None:
    """A finite differentiable scalar and detached finite metrics."""
    batch = random_pair(1).folded
    loss, metrics = objective(batch)
    _hold(loss.shape == () and bool(torch.isfinite(loss)), objective, f"returned {loss!r} instead of a finite scalar")
    _hold(loss.requires_grad, objective, "returned a loss without gradient")
    for name, value in metrics.items():
        _hold(not value.requires_grad, objective, f"returned the metric {name} with its graph attached")
        _hold(value.shape == () and bool(torch.isfinite(value)), objective, f"returned the metric {name} = {value}")


def check_pure(objective: Objective) -> None:
    """The same batch twice gives the same bits, and the batch is left as it was."""
    batch = random_pair(2).folded
    before = [x.clone() for x in (batch.logp, batch.old, batch.gain, batch.loss, batch.weight)]
    first, second = objective(batch)[0], objective(batch)[0]
    _hold(torch.equal(first, second), objective, "gave two answers for one batch")
    after = (batch.logp, batch.old, batch.gain, batch.loss, batch.weight)
    _hold(all(map(torch.equal, before, after)), objective, "wrote into its batch")


def check_folding(objective: Objective, seeds: range = range(8)) -> None:
    """A shared action has the value and gradient it has when every path is written out (statistics held equal)."""
    for seed in seeds:
        pair = random_pair(seed, missing=0.2 * (seed % 2))
        held = fit(objective, [pair.folded])
        folded, flat = gradients(held, pair.folded), gradients(held, pair.flat, of=pair.folded)
        close = torch.allclose(folded[0], flat[0], rtol=1e-9, atol=1e-12)
        _hold(close, objective, f"gives {folded[0]} on shared actions but {flat[0]} on written-out paths (seed {seed})")
        same = all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(folded[1], flat[1], strict=True))
        _hold(same, objective, f"has another gradient on shared actions than on written-out paths (seed {seed})")


def check_unsampled(objective: Objective) -> None:
    """Actions without a sampling probability (NaN, ±inf) are harmless, and how they are marked does not matter."""
    marks = (torch.nan, torch.inf, -torch.inf)
    for missing in (0.3, 1.0):
        batch = random_pair(3, missing=missing).folded
        sampled = need(batch.sampled, "sampled", "the check of missing probabilities")
        marked = [torch.where(sampled.isfinite(), sampled, mark) for mark in marks]
        got = [gradients(objective, replace(batch, sampled=values)) for values in marked]
        finite = all(bool(torch.isfinite(loss)) and all(bool(g.isfinite().all()) for g in grads) for loss, grads in got)
        _hold(finite, objective, f"is not finite when {missing:.0%} of the actions have no sampling probability")
        _hold(
            all(torch.equal(got[0][0], loss) for loss, _ in got), objective, "lets a missing probability into a weight"
        )


def check_empty(objective: Objective) -> None:
    """A batch without actions costs nothing and can be differentiated."""
    pair = random_pair(4).folded
    assert pair.paths is not None
    none = torch.zeros(0, dtype=torch.int64)
    paths = replace(pair.paths, index=none, path=none, advantage=pair.paths.advantage[:0])
    cut = {name: getattr(pair, name)[:0] for name in ("logp", "old", "gain", "loss", "weight", *OPTIONAL - {"group"})}
    loss, metrics = objective(replace(pair, paths=paths, **cut))
    loss.backward()
    _hold(loss.item() == 0.0, objective, f"costs {loss.item()} on a batch without actions")
    _hold(all(bool(torch.isfinite(v)) for v in metrics.values()), objective, "has a non-finite metric without actions")


def check_needs(objective: Objective) -> None:
    """What `needs` and `level` name is missed in one sentence, and nothing else is touched."""
    batch = random_pair(5).folded
    assert batch.paths is not None
    _hold(objective.needs <= OPTIONAL, objective, f"needs {sorted(objective.needs - OPTIONAL)}, which no batch has")
    for name in sorted(objective.needs):
        without = {"paths": replace(batch.paths, group=None)} if name == "group" else {name: None}
        _refuses(objective, replace(batch, **without), name)
    spare = dict.fromkeys(OPTIONAL - objective.needs - {"group"})
    paths = batch.paths if objective.level == "path" else None
    lean = replace(batch, **spare, paths=paths)
    loss = objective(lean)[0]
    _hold(torch.allclose(loss, objective(batch)[0]), objective, "uses fields it does not name in `needs`")
    if objective.level == "path":
        _refuses(objective, replace(batch, paths=None), "path")


CHECKS: tuple[Callable[[Objective], None], ...] = (
    check_scalar, check_pure, check_folding, check_unsampled, check_empty, check_needs,
)  # fmt: skip
"""Everything `check_objective` runs."""


def check_objective(objective: Objective) -> None:
    """Run every check; raises AssertionError with a sentence naming the objective and what it did."""
    for check in CHECKS:
        check(objective)


def _or_zeros(like: Tensor, values: Tensor | None) -> Tensor:
    return torch.zeros_like(like) if values is None else values


def _refuses(objective: Objective, batch: Batch, word: str) -> None:
    try:
        objective(batch)
    except ObjectiveError as error:
        _hold(word in str(error) and "\n" not in str(error), objective, f"does not name {word!r} in {str(error)!r}")
    else:
        _hold(False, objective, f"accepted a batch that lacks {word!r}, which it says it needs")


def _hold(condition: bool, objective: Objective, what: str) -> None:
    if not condition:
        raise AssertionError(f"{type(objective).__name__} {what}")


def _random_trees(rng: np.random.Generator) -> tuple[list[list[int]], list[int], int]:
    """Runs of actions per leaf, the tree of each leaf, and the number of actions."""
    runs: list[list[int]] = []
    groups: list[int] = []
    size = 0
    for tree in range(2):
        open_ends: list[tuple[list[int], int]] = [([], 0)]
        while open_ends:
            prefix, depth = open_ends.pop()
            length = int(rng.integers(0, 5))
            grown = prefix + list(range(size, size + length))
            size += length
            forks = int(rng.integers(2, 4)) if depth < 1 or (depth < 3 and rng.random() < 0.35) else 0
            if not forks:
                runs.append(grown)
                groups.append(tree)
            open_ends += [(grown, depth + 1)] * forks
    return runs, groups, size
