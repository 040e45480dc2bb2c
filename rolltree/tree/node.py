"""A node: a maximal run of actions written by one actor in one context.

Arrays hold one entry per action along axis 0. Actions are token ids for language policies, but any dtype and any
trailing shape is legal (latents of a flow policy, for instance); nothing in this package looks inside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float32]

Role = Literal["prompt", "policy", "env", "hint", "splice", "template"]
Birth = Literal["root", "resample", "forced", "boundary", "restart", "vine", "splice", "graft"]
Status = Literal["open", "paused", "done", "pruned", "failed"]
Finish = Literal["eos", "answer", "length", "stop", "tool", "abort", "budget", "depth", "repetition", "error"]

ROLES: tuple[Role, ...] = get_args(Role)
BIRTHS: tuple[Birth, ...] = get_args(Birth)
STATUSES: tuple[Status, ...] = get_args(Status)
FINISHES: tuple[Finish, ...] = get_args(Finish)

PER_ACTION = ("logp", "sampling_logprob", "entropy", "version", "keep", "gain", "loss", "weight")
"""Optional arrays with one number per action; `cut` slices them together with the actions."""

TRAINER_LOGP = "trainer_logp"
"""Key in a node's notes: log-probs by the trainer when it was trained on, None where it read none."""
TRAINER_ENTROPY = "trainer_entropy"
"""Key in a node's notes: entropies in nats of the distributions that the trainer read, None where it read none."""


@dataclass(frozen=True, slots=True)
class Top:
    """The k most likely alternatives at each action: ids and log-probs of shape (actions, k), full-vocabulary scale."""

    ids: NDArray[np.int32]
    logp: FloatArray

    def cut(self, start: int, stop: int) -> Top:
        """The rows from start to stop, as views."""
        return Top(self.ids[start:stop], self.logp[start:stop])


@dataclass(slots=True, eq=False)
class Node:
    """One run of actions in a tree. Create it through `Tree`, which keeps the links right."""

    id: int
    parent: int | None
    role: Role
    actions: Array
    children: list[int] = field(default_factory=list[int])
    actor: str = "policy"
    """Which policy, agent, teacher or environment wrote it."""
    level: int = 0
    """Level of a hierarchy (0 = the only or lowest one)."""
    logp: FloatArray | None = None
    """Log-prob under the policy as the trainer recomputes it: full softmax at temperature 1."""
    sampling_logprob: FloatArray | None = None
    """Log-prob under the distribution really sampled from; NaN where the step was deterministic."""
    entropy: FloatArray | None = None
    """Entropy in nats of the full next-action distribution at temperature 1."""
    top: Top | None = None
    version: NDArray[np.int32] | None = None
    """Weight version of each action as the engine reported it; None where no weights wrote it."""
    keep: NDArray[np.bool_] | None = None
    """Which actions of a trained node may teach; None means all."""
    gain: FloatArray | None = None
    """Credit, first channel: sum of the positive advantages over the leaves below (weights folded in)."""
    loss: FloatArray | None = None
    """Credit, second channel: sum of the negative advantages over the leaves below (weights folded in)."""
    weight: FloatArray | None = None
    """Sum of the weights of the leaves below: what an advantage of 1 would have put into `gain`."""
    trainable: bool = False
    """Whether these actions are the trained policy's own (and so may receive credit)."""
    forced: bool = False
    """Whether these actions were chosen by a method instead of sampled; their logp is still the policy's."""
    birth: Birth = "root"
    status: Status = "open"
    finish: Finish | None = None
    usage: str = ""
    """What became of a leaf: "" (kept, or still running), "trained", or "dropped: reason"."""
    scores: dict[str, float] = field(default_factory=dict[str, float])
    """Named numbers. On a leaf `reward` is the outcome; `step_reward` is a node's own."""
    state: Any = None
    """Handle of the environment's state after this node (an immutable snapshot)."""
    state_key: str | None = None
    """Hashable name of the state in which the NEXT action is taken."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])

    def __len__(self) -> int:
        return len(self.actions)

    def __bool__(self) -> bool:
        return True  # a node without actions is a node

    @property
    def is_leaf(self) -> bool:
        """Whether nothing has grown from this node yet."""
        return not self.children

    @property
    def ended(self) -> bool:
        """Whether no more actions will be added below this node by itself."""
        return self.status in ("done", "pruned", "failed")
