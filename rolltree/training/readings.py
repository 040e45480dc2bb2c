"""What a credit reads that the step itself cannot say: log-probs under the reference policy, values under a critic, and
how often each prompt was solved before.

All are written on the nodes of a step before its credit is computed; critic and memory learn from the step afterwards,
so no value has seen the outcome it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rolltree.control.order import PLAIN
from rolltree.credit.advantage import Credit, Reading
from rolltree.credit.baselines import BetaStore
from rolltree.credit.fold import Folded
from rolltree.credit.steps import granted, to_go
from rolltree.policy.device import Compute
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.lora import Unadapted
from rolltree.policy.packed import Packed
from rolltree.policy.protocol import Policy, policy_of
from rolltree.training.backward import DivergedError
from rolltree.training.config import Optim
from rolltree.training.learner import fixed_copy
from rolltree.training.pack import Micro, micro_batches
from rolltree.tree import Tree
from rolltree.tree.table import Floats, Table

SOLVED = 0.5
"""Outcomes above this count as a success."""
VALUES = frozenset({"action:value", "turn:value_low", "turn:value_high", "turn:value_term"})


class Critic:
    """V of the state before each action: a trunk of its own, begun as the policy's, under a linear head.

    It regresses on the undiscounted return (step rewards and outcome) with one update a step, whatever the credit's γ:
    below 1 these are not the values such a credit bootstraps from. Hierarchical credit asks for a value of acting, of a
    new segment and of switching: with γ = 1 all three are this expectation, at one state.
    """

    def __init__(self, model: Any, optim: Optim, compute: Compute | None = None) -> None:
        self.trunk = policy_of(deepcopy(model), compute)
        weight = next(self.trunk.parameters())
        self.head = nn.Linear(self.trunk.width, 1, device=weight.device, dtype=weight.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.clip_norm = optim.clip_norm
        learned = [*self.trunk.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(learned, lr=optim.lr, betas=optim.betas, eps=optim.eps, weight_decay=0.0)

    def values(self, packed: Packed) -> Tensor:
        """(T,)"""
        return self.head(self.trunk.states(packed).to(self.head.weight.dtype)).squeeze(-1)

    def learn(self, view: Table, budget: int) -> dict[str, float]:
        """One update towards the returns of a step; how far off it was, and how much of their variance it explains."""
        target = np.repeat(to_go(view, granted(view), 1.0), view.length)
        batches = _batches(view, budget)
        count = sum(len(m.packed.action) for m in batches)
        self.optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for micro in batches:
            wanted = torch.from_numpy(target[micro.packed.action]).to(self.head.weight)
            part = (self.values(micro.packed) - wanted).square().sum() / count
            part.backward()
            loss += float(part.detach())
        if not math.isfinite(loss):
            error = DivergedError(f"the critic's loss is {loss:g}", None, range(len(view.trees)))
            error.trees = list(view.trees)
            raise error
        nn.utils.clip_grad_norm_([*self.trunk.parameters(), *self.head.parameters()], self.clip_norm)
        self.optimizer.step()
        variance = float(np.var(np.concatenate([target[m.packed.action] for m in batches])))
        explained = {"optim/critic_explained": 1 - loss / variance} if variance > 0 else {}
        return {"optim/critic_loss": loss, **explained}

    def state_dict(self) -> dict[str, Any]:
        """What must survive."""
        return {"trunk": self.trunk.model.state_dict(), "head": self.head.state_dict(),
                "optimizer": self.optimizer.state_dict()}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to that state."""
        self.trunk.model.load_state_dict(state["trunk"])
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])


@dataclass(frozen=True, slots=True)
class Readings:
    """What is written on a step's nodes for its credit; nothing unless the credit asks."""

    reference: Policy | None = None
    critic: Critic | None = None
    priors: BetaStore | None = None
    """Success rates by item, for `root:prior`; a prior that the strategy has written stays."""
    needs: frozenset[str] = frozenset()
    own: Reading | None = None
    """A credit that reads for itself."""

    @property
    def asked(self) -> bool:
        """Whether there is anything to read."""
        return not (self.reference is self.critic is self.priors is self.own is None)

    def beside(self, policy: Policy) -> Readings:
        """The same, where the reference is what is under the policy's adapters."""
        if self.reference is not None or "action:reference" not in self.needs:
            return self
        return replace(self, reference=Unadapted(cast(LanguagePolicy, policy)))

    def write(self, view: Table, budget: int, policy: Policy) -> None:
        """Write `notes["reference"]`, `notes["value"]` and the values of turns on every node that can be trained on."""
        if self.own is not None:
            self.own.read(view, lambda read: _read(view, budget, lambda packed: read(policy, packed)))
        if self.priors is not None:
            for tree in view.trees:
                tree.root.scores.setdefault("prior", self.priors.value(tree.item or tree.id))
        if self.reference is not None:
            reference = self.reference
            _note(view, "reference", _read(view, budget, lambda packed: reference.read(packed).logp))
        if self.critic is not None:
            values = _read(view, budget, self.critic.values)
            if "action:value" in self.needs:
                _note(view, "value", values)
            for row, first, acting in zip(*_heads(view, values), strict=True):
                told = {"value_low": acting, "value_high": first, "value_term": first}
                view.nodes[row].scores.update({k: v for k, v in told.items() if f"turn:{k}" in self.needs})

    def learn(
        self, view: Table, budget: int, again: Collection[Tree] = (), policy: Policy | None = None
    ) -> dict[str, float]:  # fmt: skip
        """Let the critic and the memory of success rates learn from the step.

        The memory counts an outcome once, and unassisted ones alone: not those of trees that come back (`again`), and
        none of an arm with hints, examples or another question. How fast it forgets follows how far `policy`, as the
        step left it, has moved from what wrote the step.
        """
        numbers: dict[str, float] = {}
        if self.priors is not None:
            known = {id(tree) for tree in again}
            for leaf, tree in zip(view.leaf[view.live], view.leaf_tree[view.live], strict=True):
                node, owner = view.nodes[leaf], view.trees[tree]
                if id(owner) not in known and node.notes.get("arm", PLAIN) == PLAIN:
                    outcome = node.scores.get("outcome", node.scores["reward"])
                    self.priors.update(owner.item or owner.id, outcome > SOLVED)
            if policy is not None:
                moved = _moved(view, _read(view, budget, lambda packed: policy.read(packed).logp))
                self.priors.move(moved)
                numbers = {"optim/prior_moved": moved, "optim/prior_forgetting": self.priors.forgetting}
        return numbers if self.critic is None else numbers | self.critic.learn(view, budget)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {
            "reference": None if self.reference is None else self.reference.state_dict(),
            "critic": None if self.critic is None else self.critic.state_dict(),
            "priors": None if self.priors is None else dict(self.priors.counts),
            "moves": None if self.priors is None else list(self.priors.moves),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to that state."""
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        if self.priors is not None:
            self.priors.counts = {key: (float(a), float(b)) for key, (a, b) in state["priors"].items()}
            self.priors.moves = [float(kl) for kl in state["moves"]]


def make_readings(
    credit: Credit, model: Any, optim: Optim, compute: Compute | None = None, *, adapted: bool = False,
    more: frozenset[str] = frozenset(),
) -> Readings:  # fmt: skip
    """What a credit calls for, and what it will need (`more`) at a later step; models begin as copies of this one.

    A policy that will be `adapted` is its own reference (`Readings.beside`), so that none is copied for it.
    """
    needs = credit.needs | more
    wanted = "action:reference" in needs and not adapted
    reference = fixed_copy(model, compute or Compute()) if wanted else None
    critic = Critic(model, optim, compute) if needs & VALUES else None
    own = credit if isinstance(credit, Reading) else None
    return Readings(reference, critic, BetaStore() if "root:prior" in needs else None, needs, own)


def _batches(view: Table, budget: int) -> list[Micro]:
    """Every action that can be trained on, packed."""
    live = np.repeat(view.below(view.live.astype(np.float64)) > 0, view.length)
    nothing = np.zeros(view.actions)
    return micro_batches(view, Folded(nothing, nothing, (view.loss_mask & live).astype(np.float64)), budget)


def _read(view: Table, budget: int, read: Callable[[Packed], Tensor]) -> Floats:
    """One number per action that can be trained on; NaN elsewhere."""
    out = np.full(view.actions, np.nan)
    with torch.no_grad():
        for micro in _batches(view, budget):
            out[micro.packed.action] = read(micro.packed).cpu().double().numpy()
    return out


def _moved(view: Table, now: Floats) -> float:
    """KL of the distribution that wrote the step to the present one, by the estimator r − 1 − log r."""
    gap = now - view.flat("logp", np.nan)
    gap = gap[np.isfinite(gap)]
    return float(np.mean(np.expm1(gap) - gap)) if len(gap) else 0.0


def _heads(view: Table, values: Floats) -> tuple[list[int], list[float], list[float]]:
    """Rows of nodes with a value, the value before their first action, and the one where their action span begins."""
    rows = np.flatnonzero(view.trainable & (view.length > 0))
    spans = (view.nodes[row].notes.get("spans", {}).get("action", (0, 0)) for row in rows)
    begins = np.fromiter((span[0] for span in spans), np.int64, len(rows))
    first, acting = values[view.start[rows]], values[view.start[rows] + begins]
    known = np.isfinite(first)
    return rows[known].tolist(), first[known].tolist(), np.where(np.isfinite(acting), acting, first)[known].tolist()


def _note(view: Table, name: str, values: Floats) -> None:
    for row in np.flatnonzero(view.trainable & (view.length > 0)):
        own = values[view.start[row] : view.start[row] + view.length[row]]
        if np.isfinite(own).any():
            view.nodes[row].notes[name] = own.copy()
