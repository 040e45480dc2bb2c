"""Fitting a step head: logistic regression of step values on the policy's hidden states, with ridge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.analysis.step_rows import StepRowsError, labelled
from rolltree.engine.protocol import Engine
from rolltree.generate.judge.head import Floats, StepHead
from rolltree.tree import Node, Tree
from rolltree.tree.steps import steps_of, value_of


@dataclass(frozen=True, slots=True)
class FittedHead:
    """A head, and how it does on the trees it was not fitted on."""

    head: StepHead
    steps: int
    held_out: int
    auc: float | None
    """How often a step that leads to right answers scores above one that does not; None where one kind is missing."""


async def fit_head(
    engine: Engine, trees: Sequence[Tree], *, ridge: float = 1.0, hold: float = 0.2, model: str = ""
) -> FittedHead:
    """Fit on the steps of most trees and measure on the others'. Values may be soft: each is a chance of being right."""
    parts = list[int]()
    nodes, values = list[tuple[Tree, Node]](), list[float]()
    for number, tree in enumerate(trees):
        seen: set[int] = set()
        for leaf in labelled(tree):
            for step in steps_of(tree, leaf):
                value = value_of(tree, step)
                if value is not None and step.id not in seen:
                    seen.add(step.id)
                    nodes.append((tree, step))
                    values.append(value)
                    parts.append(number)
    y, part = np.asarray(values), np.asarray(parts)
    if len(np.unique(y > 0.5)) < 2:
        raise StepRowsError(
            f"a head needs steps that lead to right answers and steps that do not; {len(y)} steps of {len(trees)} trees "
            "have only one kind; label more rollouts"
        )
    x = np.stack(await asyncio.gather(*(hidden_at(engine, tree, node) for tree, node in nodes)))
    test = part >= max(1, round(len(trees) * (1 - hold))) if len(trees) > 1 else np.zeros(len(y), np.bool_)
    head = fitted(x[~test], y[~test], ridge, model)
    return FittedHead(head, int((~test).sum()), int(test.sum()), auc(head.of(x[test]), y[test]) if test.any() else None)


async def hidden_at(engine: Engine, tree: Tree, node: Node) -> Floats:
    """The last hidden state at a node's end."""
    prefix = tree.prefix(node)
    scored = await engine.score(prefix, len(prefix) - 1, frozenset({"hidden"}))
    if scored.hidden is None:
        raise StepRowsError(f"{type(engine).__name__} shows no hidden states; fit the head with the local engine")
    return scored.hidden.astype(np.float64)


def fitted(x: Floats, y: Floats, ridge: float, model: str) -> StepHead:
    """The weights that Newton's method finds for the cross-entropy against the values, with ridge on all but the bias."""
    mean, spread = x.mean(0), np.maximum(x.std(0), 1e-6)
    z = np.hstack([(x - mean) / spread, np.ones((len(x), 1))])
    penalty = np.diag([*[ridge] * x.shape[1], 1e-6])
    weight = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-np.clip(z @ weight, -30, 30)))
        gradient = z.T @ (p - y) + penalty @ weight
        step = np.linalg.solve(z.T @ (z * (p * (1 - p))[:, None]) + penalty, gradient)
        weight -= step
        if float(np.abs(step).max()) < 1e-8:
            break
    return StepHead(weight[:-1], float(weight[-1]), mean, spread, model)


def auc(said: Floats, y: Floats) -> float | None:
    """The chance that a step above one half scores above one below, ties counted half."""
    high, low = said[y > 0.5], said[y <= 0.5]
    if not len(high) or not len(low):
        return None
    return float(((high[:, None] > low).mean() + 0.5 * (high[:, None] == low).mean()))
