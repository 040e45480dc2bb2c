"""Self-improving pretraining on a small language with bad runs, held against plain pretraining."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rolltree.credit.advantage import Credit
from rolltree.credit.fold import expand, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.objective.batch import Batch, Paths
from rolltree.objective.registry import load_objective
from rolltree.tree import Tree
from rolltree.tree.table import Floats, Table, table
from studies.lab.claim import Measured

BAD, TOKENS, SUFFIX = 3, 12, 6
"""Of the judged suffixes: bad tokens, tokens in all, and length."""


def corpus(rng: np.random.Generator) -> Floats:
    """A text in which a token in seven is bad, and more than half of those that follow a bad one."""
    distribution = rng.dirichlet(np.full(TOKENS, 0.5), TOKENS)
    for previous, row in enumerate(distribution):
        bad = 0.6 if previous < BAD else 0.08
        row[:BAD] *= bad / row[:BAD].sum()
        row[BAD:] *= (1 - bad) / row[BAD:].sum()
    return distribution


def mended(distribution: Floats) -> Floats:
    """The text as a rewriter leaves it: the same, without bad tokens."""
    good = np.where(np.arange(TOKENS) < BAD, 0.0, distribution)
    return good / good.sum(1, keepdims=True)


def written(distribution: Floats, start: int, rng: np.random.Generator) -> list[int]:
    """A suffix after a token."""
    out = [start]
    for _ in range(SUFFIX):
        out.append(int(rng.choice(TOKENS, p=distribution[out[-1]])))
    return out[1:]


def bad_rate(distribution: Floats) -> float:
    """Expected share of bad tokens in a suffix after a bad token."""
    place, total = np.where(np.arange(TOKENS) < BAD, 1 / BAD, 0.0), 0.0
    for _ in range(SUFFIX):
        place = place @ distribution
        total += float(place[:BAD].sum())
    return total / SUFFIX


def judged(
    way: str, seed: int, steps: int = 150, prefixes: int = 16, rollouts: int = 6, sure: list[float] | None = None
) -> list[float]:
    """Bad rate before each step and after the last: "preference", "best" (likelihood of the judged best candidate),
    "mended" or "found" (likelihood of that text, no judge), or "unjudged" (likelihood of one's own rollout). `sure`
    takes the share of pairs of each step that the policy orders as the judge does."""
    rng = np.random.default_rng([31, seed])
    distribution = corpus(rng)
    logits = torch.tensor(np.log(distribution)).requires_grad_()
    reference = logits.detach().log_softmax(-1)
    optimizer, credit = torch.optim.Adam([logits], lr=0.02), load_credit("extremes")
    dpo, likelihood = load_objective("pairwise", beta=0.1), load_objective("reinforce")
    out: list[float] = []
    for _ in range(steps):
        policy = logits.detach().softmax(-1).numpy()
        out.append(bad_rate(policy))
        trees = [_candidates(f"t{i}", policy, distribution, rollouts, rng) for i in range(prefixes)]
        for tree in trees:
            for leaf in tree.leaves():
                if way not in ("preference", "best"):
                    leaf.scores["reward"] = float(leaf.notes["source"] == way)
        batch = _batch(table(trees), logits, reference, credit)
        if batch is None:
            continue
        optimizer.zero_grad()
        if way == "preference":
            loss, told = dpo(batch)
            if sure is not None:
                sure.append(float(told["pair_accuracy"]))
        else:
            loss, _ = likelihood(replace(batch, loss=torch.zeros_like(batch.loss)))
        loss.backward()
        optimizer.step()
    return [*out, bad_rate(logits.detach().softmax(-1).numpy())]


def _candidates(name: str, policy: Floats, distribution: Floats, rollouts: int, rng: np.random.Generator) -> Tree:
    start = int(rng.choice(TOKENS))
    tree = Tree(name, [start])
    sources = [
        ("found", distribution),
        ("mended", mended(distribution)),
        *[("own", policy)] * (rollouts - 1),
        ("unjudged", policy),
    ]
    for source, text in sources:
        tokens = written(text, start, rng)
        leaf = tree.extend(0, tokens, status="done", notes={"source": source})
        leaf.scores["reward"] = -float(sum(token < BAD for token in tokens))
    return tree


def _batch(view: Table, logits: Tensor, reference: Tensor, credit: Credit) -> Batch | None:
    """The paths that were preferred or rejected; None where no group has any."""
    advantage = credit(view)
    paths = expand(view, advantage, leaf_weights(view, "sequence", counted=advantage.counted))
    if not len(paths.leaf):
        return None
    token = view.flat("actions").astype(np.int64)
    previous = np.concatenate([[0], token[:-1]])
    heads = view.start[view.leaf]
    previous[heads] = [int(view.trees[t].root.actions[-1]) for t in view.leaf_tree]
    at, before, after = (torch.tensor(x[paths.index]) for x in (np.arange(len(token)), previous, token))
    logp = logits.log_softmax(-1)[before, after]
    pushed = torch.tensor(paths.weight[paths.path] * paths.advantage)
    everything = Paths(
        torch.arange(len(at)), torch.tensor(paths.path), torch.tensor(paths.advantage), torch.tensor(paths.weight),
        len(paths.leaf), torch.tensor(view.leaf_tree[paths.leaf]),
    )  # fmt: skip
    return Batch(
        logp, logp.detach(), pushed.clamp(min=0), pushed.clamp(max=0), torch.tensor(paths.weight[paths.path]),
        reference=reference[before, after], paths=everything,
    )  # fmt: skip


def self_pretraining(seed: int) -> Measured:
    """Bad continuations of a bad prefix: online preference against likelihood of the judged best candidate."""
    ways = ("preference", "best", "mended", "found", "unjudged")
    sure = list[float]()
    curves = {way: judged(way, seed, sure=sure) for way in ways}
    shown = {way: ([float(i) for i in range(len(c))], c) for way, c in curves.items()}
    return Measured(
        curves["preference"][-1], curves["best"][-1], shown, acted={"policy/pair_accuracy": float(np.mean(sure))}
    )
