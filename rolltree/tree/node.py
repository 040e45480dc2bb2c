"""A node: a maximal run of actions written by one actor in one context, and its per-action arrays.

Arrays hold one entry per action along axis 0. Actions are token ids for language policies, but any dtype and any
trailing shape is legal (latents of a flow policy, for instance); nothing in this package looks inside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rolltree.errors import RolltreeError

# Events: every decision about a tree with the numbers that caused it. Viewer and doctor read these and never guess.

Kind = Literal[
    "start", "extend", "force", "fork", "cut", "graft", "splice", "stop", "prune", "pause", "resume", "fail", "retry",
    "act", "verify", "backfill", "allocate", "select", "drop", "train", "budget", "note",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Event:
    """Something decided at a node (None = about the whole tree): what, why in words, and the numbers behind it."""

    kind: Kind
    node: int | None
    why: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    at: float = 0.0
    """Seconds on the run's clock (the hand's, so that a virtual clock works too)."""


Array = NDArray[Any]
FloatArray = NDArray[np.float32]

Role = Literal["prompt", "policy", "env", "hint", "splice", "template"]
Birth = Literal["root", "resample", "forced", "boundary", "restart", "vine", "splice", "graft"]
Status = Literal["open", "paused", "done", "pruned", "failed"]
Finish = Literal["eos", "answer", "length", "stop", "tool", "abort", "budget", "depth", "repetition", "error"]

CUT: tuple[Finish, ...] = ("length", "budget", "depth")
"""Reasons for which a rollout ends where it might have gone on: a limit of tokens, of what may be spent, of turns."""

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
    """Which actions of a trained node may be trained on; None means all."""
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


class TreeError(RolltreeError, ValueError):
    """An operation that would break a tree; the message names the node, the value and the way out."""


DTYPE: Mapping[str, Any] = dict.fromkeys(PER_ACTION, np.float32) | {"version": np.int32, "keep": np.bool_}
"""Element type of each per-action array."""

FILL: Mapping[str, Any] = dict.fromkeys(PER_ACTION, np.nan) | {
    "version": -1, "keep": True, "gain": 0.0, "loss": 0.0, "weight": 0.0,
}  # fmt: skip
"""What stands for "not given" in an array that other actions of the run do have."""


def as_actions(actions: Sequence[Any] | Array, like: Array | None = None) -> Array:
    """Actions as an array; a plain list of ints becomes int32, and any other list takes the type of `like`."""
    if isinstance(actions, np.ndarray):
        return actions
    if len(actions) == 0:
        return np.zeros(0, np.int32) if like is None else like[:0]
    array = np.asarray(actions)
    if array.dtype.kind in "iu":
        small = array.astype(np.int32)
        return small if np.array_equal(small, array) else array
    return array.astype(like.dtype) if like is not None and like.dtype.kind == array.dtype.kind else array


def join_actions(arrays: Sequence[Array]) -> Array:
    """Actions end to end: one array where all have one shape and kind, else one object per action.

    A prompt of token ids under latents is such a mixed run: it has a length, can be cut and joined again, and no
    number in it changes its type.
    """
    some = [a for a in arrays if len(a)]
    if not some:
        return arrays[0][:0] if arrays else np.zeros(0, np.int32)
    first = some[0]
    if all(a.shape[1:] == first.shape[1:] and alike(a, first) for a in some):
        return np.concatenate(some)
    out = np.empty(sum(map(len, some)), object)
    at = 0
    for a in some:
        for action in a:
            out[at] = action
            at += 1
    return out


def alike(one: Array, other: Array) -> bool:
    """Whether two arrays hold numbers of one kind: integers, floats, truth values."""
    return one.dtype.kind == other.dtype.kind or {one.dtype.kind, other.dtype.kind} == {"i", "u"}


def settle(where: str, node: Node) -> None:
    """Give a new node's arrays their types and refuse those whose length differs from the actions'."""
    count = len(node.actions)
    for name in PER_ACTION:
        given = getattr(node, name)
        if given is None:
            continue
        array = _typed(given, DTYPE[name])
        if array.shape != (count,):
            raise TreeError(f"{where}: {name} has {_size(array)} for {count} actions")
        if array is not given:
            setattr(node, name, array)
    if node.top is not None:
        check_top(where, node.top, count)


def check_top(where: str, top: Top, count: int) -> None:
    """Refuse alternatives that are not one row of equal width per action."""
    if top.ids.ndim != 2 or top.ids.shape != top.logp.shape or len(top.ids) != count:
        raise TreeError(
            f"{where}: top has ids of shape {top.ids.shape} and logp of shape {top.logp.shape} for {count} actions; "
            f"both must be ({count}, k)"
        )


def joined(name: str, old: Array | None, before: int, new: Any, added: int, *, where: str) -> Array | None:
    """A per-action array continued by `added` entries; what one side lacks is filled. None where both lack it."""
    if old is None and new is None:
        return None
    dtype = DTYPE[name]
    left = np.full(before, FILL[name], dtype) if old is None else old
    right: Array = np.full(added, FILL[name], dtype) if new is None else _typed(new, dtype)
    if right.shape != (added,):
        raise TreeError(f"{where}: {name} has {_size(right)} for {added} appended actions")
    return np.concatenate([left, right])


def joined_top(where: str, old: Top | None, before: int, new: Top | None, added: int) -> Top | None:
    """Alternatives continued. They cannot be filled, so a run that lacks them for some actions has none."""
    if new is not None:
        check_top(where, new, added)
    if before == 0:
        return new
    if old is None or new is None:
        return None
    if old.ids.shape[1] != new.ids.shape[1]:
        raise TreeError(f"{where}: top has {new.ids.shape[1]} alternatives per action, not {old.ids.shape[1]}")
    logp: FloatArray = np.concatenate([old.logp, new.logp])
    return Top(np.concatenate([old.ids, new.ids]), logp)


def _typed(array: Any, dtype: DTypeLike) -> Array:
    return array if isinstance(array, np.ndarray) and array.dtype == dtype else np.asarray(array, dtype)


def _size(array: Array) -> str:
    return f"{len(array)} entries" if array.ndim == 1 else f"shape {array.shape}"


SOLVED = 1 - 1e-9
"""An outcome of at least this counts as solved, where the verifier does not say itself what does."""


def is_solved(scores: Mapping[str, float]) -> bool:
    """Whether a judged leaf counts as right: as the verifier says, else by its outcome."""
    return scores.get("solved", scores.get("outcome", scores["reward"])) >= SOLVED


# The optional fields of a node, typed, for calls that create one.


class NodeFields(TypedDict, total=False):
    """Keyword arguments of `Tree.extend`; meanings are documented on `Node`."""

    actor: str
    level: int
    logp: FloatArray | None
    sampling_logprob: FloatArray | None
    entropy: FloatArray | None
    top: Top | None
    version: NDArray[np.int32] | None
    keep: NDArray[np.bool_] | None
    gain: FloatArray | None
    loss: FloatArray | None
    weight: FloatArray | None
    trainable: bool
    forced: bool
    birth: Birth
    status: Status
    finish: Finish | None
    usage: str
    scores: dict[str, float]
    state: Any
    state_key: str | None
    notes: dict[str, Any]
