"""What a credit returns, and how it becomes the two channels a trainer reads.

An advantage is a function of (leaf, node, action): A = factor[action] · (leaf[l] + node[n]) + action[action]. Almost
every published estimator is one of these terms: a group estimator fills `leaf`, a tree backup fills `node`, token
shaping fills `factor` or `action`. Keeping the terms apart lets credits be added and shaped without writing every
path out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rolltree.errors import RolltreeError
from rolltree.tree.table import Table

Floats = NDArray[np.float64]


class CreditError(RolltreeError, ValueError):
    """A forest lacks what a credit needs, or holds what it cannot use; names the tree, the node and the way out."""


@dataclass(frozen=True, slots=True)
class Advantage:
    """Terms of the advantage; None stands for 0 (for `factor`: 1). Sizes are those of the table it was made from."""

    leaf: Floats | None = None
    """Per leaf: every trained action on its path."""
    node: Floats | None = None
    """Per node: its own actions, for every leaf below it."""
    action: Floats | None = None
    """Per action (flat, see `Table.start`)."""
    factor: Floats | None = None
    """Per action, multiplies the leaf and node terms; must be ≥ 0 so that signs survive."""
    counted: NDArray[np.bool_] | None = None
    """Per leaf: whether it teaches at all (pivots and singletons may be left out). None = every live leaf."""

    def __add__(self, other: Advantage) -> Advantage:
        """Sum of two credits on the same table; only one of them may carry a factor."""
        if self.factor is not None and other.factor is not None:
            raise CreditError("cannot add two advantages that both carry a factor; apply the shaping after the sum")
        if (self.factor is None) != (other.factor is None):
            raise CreditError("cannot add a shaped advantage to an unshaped one; add first, shape the sum")
        return Advantage(
            _sum(self.leaf, other.leaf), _sum(self.node, other.node), _sum(self.action, other.action), self.factor,
            _both(self.counted, other.counted),
        )  # fmt: skip

    def scaled(self, by: float) -> Advantage:
        """All terms times a number."""
        return replace(self, leaf=_times(self.leaf, by), node=_times(self.node, by), action=_times(self.action, by))


@runtime_checkable
class Credit(Protocol):
    """A pure function from a forest's table to an advantage.

    `needs` names what must stand in the forest: "reward", "step_reward", "state_key", "value", "entropy", "logp", …
    """

    @property
    def needs(self) -> frozenset[str]:
        """What the forest must carry."""
        ...

    def __call__(self, table: Table) -> Advantage:
        """Compute the advantage; raises CreditError naming the node that lacks something."""
        ...


class Under(Protocol):
    """The trained policy, to a credit: it reads every action that can be trained on."""

    def __call__(self, read: Callable[[Any, Any], Any]) -> Floats:
        """One number per action (flat; NaN where nothing is trained on). `read` gets the policy and a packed batch."""
        ...


@runtime_checkable
class Reading(Protocol):
    """A credit that has the trainer read a step under the policy, for what no strategy or engine can write.

    Whoever computes such a credit outside of training must write it on the nodes before.
    """

    @property
    def reads(self) -> frozenset[str]:
        """Those of its needs that `read` writes."""
        ...

    def read(self, table: Table, under: Under) -> None:
        """Write them on the nodes of a step, before the credit is computed."""
        ...


def _sum(a: Floats | None, b: Floats | None) -> Floats | None:
    return b if a is None else a if b is None else a + b


def _both(a: NDArray[np.bool_] | None, b: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    return b if a is None else a if b is None else a & b


def _times(a: Floats | None, by: float) -> Floats | None:
    return None if a is None else a * by
