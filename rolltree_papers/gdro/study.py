"""Prompt weights and rollout widths of GDRO on simulated prompts, held against uniform ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rolltree.control.plan import Control, Plan, Step, Uniform
from rolltree_papers.gdro import PromptGdro, Reading, RolloutGdro
from studies.lab.claim import Measured
from studies.prompts.checks import bandit, moved
from studies.prompts.oracles import OracleWidths
from studies.prompts.page import columns, table
from studies.prompts.world import Log, PromptWorld, grouped, index, run


def skewed(seed: int) -> PromptWorld:
    """Three difficulties at 90, 9 and 1 %."""
    logits = np.concatenate([np.full(270, 1.0), np.full(27, -1.0), np.full(3, -2.5)])
    return PromptWorld(seed=seed, logits=np.random.default_rng([5, seed]).permutation(logits), gain=0.05)


def worst_bin(control: Control, seed: int, steps: int = 100) -> tuple[float, int]:
    """Pass rate of the rarest, hardest prompts after training, and prompts that weighed more than others of a step."""
    world, weighed = skewed(seed), 0
    hardest = np.flatnonzero(world.logits < -2)
    for log in run(control, world, steps):
        weights = [g[0].order.marks.get("prompt_weight", 1.0) for g in grouped(log.delivered).values()]
        weighed += sum(weight > min(weights) for weight in weights)
    return float(world.rates[hardest].mean()), weighed


@dataclass(frozen=True, slots=True)
class MeanOne:
    """A control whose prompt weights are divided by their mean over the step, so that none learns at a higher rate."""

    inner: Control
    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self) -> object:
        """The control's own."""
        return self.inner.start()

    def plan(self, step: Step, state: object) -> Plan:
        """The control's rounds with other weights."""
        plan, answer = self.inner.plan(step, state), None
        while True:
            try:
                orders = next(plan) if answer is None else plan.send(answer)
            except StopIteration:
                return
            assert isinstance(orders, Sequence)
            weights = [order.marks.get("prompt_weight", 1.0) for order in orders]
            answer = yield [
                replace(order, marks={**order.marks, "prompt_weight": weight / float(np.mean(weights))})
                for order, weight in zip(orders, weights, strict=True)
            ]


def prompt_gdro(seed: int) -> Measured:
    """The worst bin after 100 steps: Prompt-GDRO's weights, of mean 1 in every step, against uniform ones."""
    value, weighed = worst_bin(MeanOne(PromptGdro()), seed)
    return Measured(value, worst_bin(Uniform(), seed)[0], acted={"prompts that weighed more": float(weighed)})


def noise(logs: list[Log], world: PromptWorld) -> float:
    """Mean over prompts of p(1−p)/n: the variance of their group means."""
    out: list[float] = []
    for log in logs:
        for group in grouped(log.delivered).values():
            p = float(world.rates[index(group[0].order)])
            out.append(p * (1 - p) / max(sum(d.n for d in group), 1))
    return float(np.mean(out))


def group_noise(control: Control, world: PromptWorld, steps: int = 90, last: int = 30) -> tuple[float, int]:
    """The variance of group means once a control has learned, and rollouts of groups above 8 then; the world must
    stand still."""
    logs = run(control, world, steps)[-last:]
    return noise(logs, world), moved(logs)


def rollout_gdro(seed: int, reading: Reading = "paper") -> Measured:
    """The variance of group means: Rollout-GDRO's widths against uniform ones."""
    value, changed = group_noise(RolloutGdro(reading=reading), bandit(seed))
    plain = group_noise(Uniform(), bandit(seed))[0]
    return Measured(value, plain, acted={"rollouts moved to other prompts": float(changed)})


CONTROLS: dict[str, Callable[[PromptWorld], Control]] = {
    "prompt-gdro": lambda _: PromptGdro(),
    "rollout-gdro": lambda _: RolloutGdro(),
    "rollout-gdro, root": lambda _: RolloutGdro(rule="root"),
}
"""What runs beside the other controls (`studies.prompts.page`)."""
WIDTHS: dict[str, Callable[[PromptWorld], Control]] = {
    "uniform": lambda _: Uniform(),
    "rollout-gdro": lambda _: RolloutGdro(),
    "rollout-gdro, not drawn": lambda _: RolloutGdro(draw=False),
    "rollout-gdro, released code": lambda _: RolloutGdro(reading="code"),
    "square root of measured variances": lambda _: RolloutGdro(rule="root"),
    "oracle square root": OracleWidths,
}
WEIGHTS: dict[str, Control] = {
    "uniform": Uniform(),
    "prompt-gdro": PromptGdro(),
    "prompt-gdro, not debiased": PromptGdro(debias=False),
    "prompt-gdro, released code": PromptGdro(reading="code"),
}


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Widths and weights (GDRO)",
        "Variance of group means, mean p(1−p)/n, in the last 30 of 90 steps of 64 prompts that stand still.",
        table(["widths", "variance"], [
            (n, columns(lambda s, m=m: group_noise(m(w := bandit(s)), w)[:1])) for n, m in WIDTHS.items()
        ], 4),
        "Pass rate of 3 of 300 prompts that start at 0.08 (27 start at 0.27, 270 at 0.73), after 100 steps; weights as "
        "they are, and divided by their mean over the step, so that nothing is learned at a higher rate.",
        table(["weights", "rarest, hardest bin", "at a mean weight of 1"], [
            (n, columns(lambda s, m=m: [worst_bin(m, s)[0], worst_bin(MeanOne(m), s)[0]])) for n, m in WEIGHTS.items()
        ]),
    ]  # fmt: skip
