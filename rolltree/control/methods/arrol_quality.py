"""A small head that reads success off hidden states, trained on the fly on the outcomes of training rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rolltree.control.order import ControlError
from rolltree.tree.values import dumps, storable

Floats = NDArray[np.float64]
NAMES = ("w1", "b1", "w2", "b2")
BATCH = 64
"""Examples per update."""


@storable
@dataclass(slots=True, eq=False)
class QualityHead:  # noqa: PLW1641 - it changes as it learns, so it has no hash
    """A network of two layers with one logit, by Adam on the cross-entropy to outcomes in [0, 1] (arXiv 2603.24840).

    States are centred and scaled one by one before they are read, so that their size, which drifts with the weights,
    says nothing. After each step it passes `passes` times over the newest `memory` examples: the policy moves, and old
    states were another policy's. It begins with zeros in its last layer (score 1/2), its first examples fix its width.
    """

    hidden: int = 32
    lr: float = 3e-3
    decay: float = 1e-2
    """Weight decay of the matrices, as a share of the learning rate (AdamW)."""
    passes: int = 4
    memory: int = 1024
    updates: int = 0
    weights: dict[str, Floats] = field(default_factory=dict[str, Floats])
    first: dict[str, Floats] = field(default_factory=dict[str, Floats])
    second: dict[str, Floats] = field(default_factory=dict[str, Floats])
    states: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """The newest examples, oldest first."""
    outcomes: Floats = field(default_factory=lambda: np.zeros(0))
    shares: Floats = field(default_factory=lambda: np.zeros(0))
    """What each example counts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QualityHead) and dumps(self) == dumps(other)

    def scores(self, states: Sequence[NDArray[np.float32]]) -> Floats:
        """Probabilities of success by the head alone; 1/2 before it has seen anything."""
        if not self.weights or not len(states):
            return np.full(len(states), 0.5)
        return _sigmoid(self._read(_scaled(self._checked(np.stack(states))))[0])

    def learn(self, states: Sequence[NDArray[np.float32]], outcomes: Sequence[float], shares: Sequence[float]) -> None:
        """Take in examples and train on the newest ones; `shares` say what each counts."""
        if not len(states):
            return
        new = np.stack(states).astype(np.float32)
        if not self.weights:
            self._begin(new.shape[1])
        self.states = np.concatenate([self.states, self._checked(new)])[-self.memory :]
        self.outcomes = np.concatenate([self.outcomes, np.asarray(outcomes, np.float64)])[-self.memory :]
        self.shares = np.concatenate([self.shares, np.asarray(shares, np.float64)])[-self.memory :]
        x = _scaled(self.states)
        for _ in range(self.passes):
            order = np.random.default_rng([71, self.updates]).permutation(len(x))
            for at in range(0, len(x), BATCH):
                rows = order[at : at + BATCH]
                self._update(x[rows], self.outcomes[rows], self.shares[rows])

    def _begin(self, width: int) -> None:
        rng = np.random.default_rng([73, width])
        shapes = {"w1": (width, self.hidden), "b1": (self.hidden,), "w2": (self.hidden,), "b2": (1,)}
        self.weights = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.weights["w1"] = rng.normal(0, np.sqrt(2 / width), shapes["w1"])
        self.first = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.second = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.states = np.zeros((0, width), np.float32)

    def _checked(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        if states.shape[1] != len(self.weights["w1"]):
            raise ControlError(
                f"the quality head was trained on states of width {len(self.weights['w1'])} and is given "
                f"{states.shape[1]}; resume with the same model, or start anew"
            )
        return states

    def _read(self, x: Floats) -> tuple[Floats, Floats]:
        """Logits, and the activations of the first layer."""
        w = self.weights
        active = np.maximum(x @ w["w1"] + w["b1"], 0.0)
        return active @ w["w2"] + w["b2"][0], active

    def _update(self, x: Floats, y: Floats, share: Floats) -> None:
        logits, active = self._read(x)
        pull = share * (_sigmoid(logits) - y) / max(float(share.sum()), 1e-12)
        back = np.outer(pull, self.weights["w2"]) * (active > 0)
        slope = {"w1": x.T @ back, "b1": back.sum(0), "w2": active.T @ pull, "b2": np.array([pull.sum()])}
        self.updates += 1
        for name in NAMES:
            self.first[name] = 0.9 * self.first[name] + 0.1 * slope[name]
            self.second[name] = 0.999 * self.second[name] + 0.001 * slope[name] ** 2
            mean = self.first[name] / (1 - 0.9**self.updates)
            size = np.sqrt(self.second[name] / (1 - 0.999**self.updates))
            kept = 1 - self.lr * self.decay if name[0] == "w" else 1.0
            self.weights[name] = kept * self.weights[name] - self.lr * mean / (size + 1e-8)


def _scaled(states: NDArray[np.float32]) -> Floats:
    x = states.astype(np.float64)
    x -= x.mean(1, keepdims=True)
    return x / (x.std(1, keepdims=True) + 1e-6)


def _sigmoid(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * x))
