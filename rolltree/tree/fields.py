"""The optional fields of a node, typed, for calls that create one."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.node import Birth, Finish, FloatArray, Status, Top


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
