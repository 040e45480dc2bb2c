"""A chain of actions whose every path can be listed: the problem staleness is measured on.

Eight actions out of three, each chosen from a softmax that knows the position and the action before; reward 1 when at
least six of them follow a secret rule about that pair. 6,561 paths, 72 parameters: every mean is a sum, no estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Objective, Paths

LENGTH = 8
ACTIONS = 3
ENOUGH = 6


@dataclass(frozen=True, eq=False)
class Chain:
    """All paths of one problem: actions (Y, T), the action before each (Y, T) and the reward of each path (Y,)."""

    actions: Tensor
    before: Tensor
    reward: Tensor

    def logp(self, theta: Tensor) -> Tensor:
        """(Y, T) log-probs of every path's actions under logits θ (T, 3, 3)."""
        steps = torch.arange(self.actions.shape[1])
        return theta.log_softmax(-1)[steps, self.before, self.actions]

    def distribution(self, theta: Tensor) -> Tensor:
        """(Y,) probability of every path."""
        return self.logp(theta).sum(1).exp()

    def value(self, theta: Tensor) -> Tensor:
        """Expected reward."""
        return (self.distribution(theta) * self.reward).sum()

    def true_gradient(self, theta: Tensor) -> Tensor:
        """(T, 3, 3) gradient of the expected reward."""
        theta = theta.detach().requires_grad_()
        return torch.autograd.grad(self.value(theta), theta)[0]

    def scores(self, theta: Tensor, coefficient: Tensor) -> Tensor:
        """(Y, T·9) per path: Σ_t coefficient[y, t]·∇log π(a_t | s_t), flattened."""
        probability = theta.softmax(-1)
        rows, steps = self.actions.shape
        out = torch.zeros(rows, steps, ACTIONS, ACTIONS, dtype=theta.dtype)
        at = torch.arange(rows)
        for t in range(steps):
            previous = self.before[:, t]
            score = -probability[t, previous]
            score[at, self.actions[:, t]] += 1
            out[at, t, previous] = coefficient[:, t, None] * score
        return out.reshape(rows, -1)


def chain(seed: int) -> Chain:
    """One problem: which action is right after each other, per position, is drawn from the seed."""
    g = torch.Generator().manual_seed(seed)
    secret = torch.randint(0, ACTIONS, (LENGTH, ACTIONS), generator=g)
    numbers = torch.arange(ACTIONS**LENGTH)
    actions = torch.stack([numbers // ACTIONS**t % ACTIONS for t in range(LENGTH)], 1)
    before = torch.cat([torch.zeros_like(actions[:, :1]), actions[:, :-1]], 1)
    right = actions == secret[torch.arange(LENGTH), before]
    return Chain(actions, before, (right.sum(1) >= ENOUGH).double())


def start() -> Tensor:
    """Logits of the uniform policy."""
    return torch.zeros(LENGTH, ACTIONS, ACTIONS, dtype=torch.float64)


def versions(problem: Chain, seed: int, count: int, *, rollouts: int = 32, rate: float = 1.0) -> list[Tensor]:
    """The weights of an on-policy REINFORCE run with a mean baseline, one per step: what a trainer would publish."""
    g = torch.Generator().manual_seed(1000 + seed)
    theta = start()
    published = [theta]
    for _ in range(count):
        drawn = torch.multinomial(problem.distribution(theta), rollouts, replacement=True, generator=g)
        reward = problem.reward[drawn]
        weight = ((reward - reward.mean()) / rollouts)[:, None].expand(-1, LENGTH)
        some = Chain(problem.actions[drawn], problem.before[drawn], reward)
        theta = theta + rate * some.scores(theta, weight).sum(0).reshape(theta.shape)
        published.append(theta)
    return published


def stale_batch(
    problem: Chain, theta: Tensor, behaviour: Tensor, mass: Tensor, advantage: Tensor, *, proximal: bool
) -> Batch:
    """Paths with weights and advantages as a batch; `proximal`: whether `old` is π itself or the behaviour policy."""
    logp = problem.logp(theta.detach())
    rows, steps = logp.shape
    sampled = problem.logp(behaviour)
    credit = (mass * advantage)[:, None].expand(-1, steps).reshape(-1)
    return Batch(
        logp=logp.reshape(-1).requires_grad_(),
        old=(logp.detach() if proximal else sampled).reshape(-1),
        gain=credit.clamp(min=0),
        loss=credit.clamp(max=0),
        weight=mass.repeat_interleave(steps),
        sampled=sampled.reshape(-1),
        paths=Paths(
            index=torch.arange(rows * steps),
            path=torch.arange(rows).repeat_interleave(steps),
            advantage=advantage.repeat_interleave(steps),
            weight=mass,
            count=rows,
        ),
    )


def coefficients(objective: Objective, batch: Batch, rows: int) -> Tensor:
    """(rows, T) −∂loss/∂log π: what the objective multiplies each action's score with."""
    loss, _ = objective(batch)
    return -torch.autograd.grad(loss, batch.logp)[0].reshape(rows, -1)
