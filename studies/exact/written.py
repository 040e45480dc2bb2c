"""A writer whose texts are a few words, trained on rewards of several parts: slides, replies and rebuttals share it.

Its logits are a table (prompt, place, word), so that every word is drawn by itself and what a policy writes can be
measured from many samples. Rewards, shapers and credits are the shipped ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.credit.advantage import Credit
from rolltree.filter.lengths import Shaper
from rolltree.tree import Tree
from rolltree.tree.table import Floats, table
from studies.exact.bandit import softmax

Words = tuple[int, ...]
Graded = Callable[[int, Words], Mapping[str, float]]
"""Parts of a text's verdict, by prompt and words."""
GROUP, STEPS, RATE = 16, 300, 0.3
SAMPLES = 200
"""Texts a prompt that a measure reads."""


@dataclass
class Trained:
    """A policy before and after training, the measure on the way, and how far the reward was reshaped."""

    policy: Floats
    curve: list[float] = field(default_factory=list[float])
    reshaped: float = 0.0


def train(
    start: Floats, graded: Graded, shapers: Sequence[Shaper], credit: Credit, measure: Callable[[Floats], float],
    *, seed: int, every: int = 30, pooled: bool = False,
) -> Trained:  # fmt: skip
    """Policy gradient on groups of texts; `pooled` gives all texts of a step their mean reward, as a batch scalar."""
    rng, logits = np.random.default_rng([51, seed]), np.array(start, np.float64)
    out, moved = Trained(softmax(logits)), list[float]()
    for step in range(STEPS + 1):
        out.policy = softmax(logits)
        if step % every == 0:
            out.curve.append(measure(out.policy))
        trees, texts = list[Tree](), list[Words]()
        for prompt in range(len(logits)):
            tree = Tree(f"p{prompt}", [0])
            for words in draw(out.policy[prompt], GROUP, rng):
                leaf = tree.extend(0, list(words), status="done")
                leaf.scores.update({"reward": 0.0, **graded(prompt, words)})
                texts.append(words)
            for shaper in shapers:
                shaper(tree, len(logits[0]))
            trees.append(tree)
        leaves = [leaf for tree in trees for leaf in tree.leaves()]
        moved += [abs(leaf.scores["reward"] - leaf.scores.get("outcome", leaf.scores["reward"])) for leaf in leaves]
        if pooled:
            mean = float(np.mean([leaf.scores["reward"] for leaf in leaves]))
            for leaf in leaves:
                leaf.scores["reward"] = mean
        gain = credit(table(trees)).leaf
        assert gain is not None
        for i, (words, weight) in enumerate(zip(texts, gain, strict=True)):
            row = logits[i // GROUP]
            row -= RATE * weight / GROUP * out.policy[i // GROUP]
            row[np.arange(len(words)), words] += RATE * weight / GROUP
    out.reshaped = float(np.mean(moved))
    return out


def draw(policy: Floats, n: int, rng: np.random.Generator) -> list[Words]:
    """Texts of one prompt."""
    columns = [rng.choice(policy.shape[1], n, p=row) for row in policy]
    return [tuple(int(column[i]) for column in columns) for i in range(n)]


def mean_of(measured: Callable[[int, Words], float], seed: int) -> Callable[[Floats], float]:
    """The mean of a number over fresh texts of a policy, the same draws each time."""

    def of(policy: Floats) -> float:
        rng = np.random.default_rng([52, seed])
        return float(np.mean([measured(p, t) for p in range(len(policy)) for t in draw(policy[p], SAMPLES, rng)]))

    return of


def shown(curves: Mapping[str, Sequence[float]], every: int = 30) -> dict[str, tuple[list[float], list[float]]]:
    """Curves over steps."""
    return {name: ([float(every * i) for i in range(len(c))], list(c)) for name, c in curves.items()}
