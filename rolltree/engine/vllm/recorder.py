"""Inside vLLM's workers: the entropy of every distribution, written down before anything is done to its logits.

vLLM reports the best alternatives of a step, which of a real vocabulary are not the distribution. So a logits processor
(vLLM's v1 interface) computes −Σ p ln p over all logits where a request asks for it, and a worker extension hands the
numbers out. This module is imported by vLLM alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample import logits_processor as vllm_processors

from rolltree.engine.vllm.naming import ASKED

processors: Any = vllm_processors

_recorded: dict[str, dict[int, float]] = {}
"""Entropies by request and by the number of tokens written before; of a step made twice the later one stands."""


def entropies(logits: Tensor) -> Tensor:
    """−Σ p ln p of each row of logits."""
    logp = torch.log_softmax(logits.float(), -1)
    return -(logp.exp() * logp.masked_fill(logp == -torch.inf, 0.0)).sum(-1)


class EntropyRecorder(processors.LogitsProcessor):
    """Changes no logits."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[str, Sequence[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        """No: vLLM leaves out such processors where all requests are greedy."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow requests to the rows that they stand in."""
        if batch_update is None:
            return
        rows = self._rows
        for row in batch_update.removed:
            rows.pop(row, None)
        for row, params, _, written in batch_update.added:
            rows.pop(row, None)
            name = (getattr(params, "extra_args", None) or {}).get(ASKED)
            if name is not None:
                rows[row] = str(name), written
        for one, other, way in batch_update.moved:
            here, there = rows.pop(one, None), rows.pop(other, None)
            if here is not None:
                rows[other] = here
            if there is not None and way == processors.MoveDirectionality.SWAP:
                rows[one] = there

    def apply(self, logits: Tensor) -> Tensor:
        """Write the entropies of this step down."""
        rows = [row for row in self._rows if row < len(logits)]
        if rows:
            for row, value in zip(rows, entropies(logits[rows]).tolist(), strict=True):
                name, written = self._rows[row]
                _recorded.setdefault(name, {})[len(written)] = value
        return logits


class EntropyWorker:
    """What vLLM's workers answer besides."""

    def rolltree_entropies(self, name: str, start: int, stop: int, forget: Sequence[str]) -> list[float] | None:
        """Entropies at the tokens from `start` to `stop` of a request, as far as this worker sampled it; requests to
        forget are over.
        """
        for over in forget:
            _recorded.pop(over, None)
        here = _recorded.get(name)
        return None if here is None else [here[at] for at in range(start, stop) if at in here]
