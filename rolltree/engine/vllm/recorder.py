"""Inside vLLM's workers: every distribution's entropy and best tokens, written down before its logits are changed.

vLLM reports the best alternatives of a step, which of a real vocabulary are not the distribution, and under
`processed_logprobs` not the policy's. So a logits processor (vLLM's v1 interface) computes −Σ p ln p over all logits
and picks the most likely tokens where a request asks for it, and a worker extension hands the numbers out. This module
is imported by vLLM alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample import logits_processor as vllm_processors

from rolltree.engine.vllm.naming import ASKED, BEST

processors: Any = vllm_processors

Recorded = tuple[float, list[int], list[float]]
"""Of one step: the entropy, and ids and log-probs of the most likely tokens, most likely first."""

_recorded: dict[str, dict[int, Recorded]] = {}
"""By request and by the number of tokens written before; of a step made twice the later one stands."""


def entropies(logp: Tensor) -> Tensor:
    """−Σ p ln p of each row of log-probs."""
    return -(logp.exp() * logp.masked_fill(logp == -torch.inf, 0.0)).sum(-1)


class Recorder(processors.LogitsProcessor):
    """Changes no logits."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[str, Sequence[int], int]] = {}

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
            asked = getattr(params, "extra_args", None) or {}
            if ASKED in asked:
                rows[row] = str(asked[ASKED]), written, int(asked.get(BEST, 0))
        for one, other, way in batch_update.moved:
            here, there = rows.pop(one, None), rows.pop(other, None)
            if here is not None:
                rows[other] = here
            if there is not None and way == processors.MoveDirectionality.SWAP:
                rows[one] = there

    def apply(self, logits: Tensor) -> Tensor:
        """Write this step down."""
        rows = [row for row in self._rows if row < len(logits)]
        if rows:
            logp = torch.log_softmax(logits[rows].float(), -1)
            most = max(self._rows[row][2] for row in rows)
            best, ids = logp.topk(most, -1) if most else (logp[:, :0], logp[:, :0].long())
            told = zip(rows, entropies(logp).tolist(), ids.tolist(), best.tolist(), strict=True)
            for row, spread, likely, their in told:
                name, written, count = self._rows[row]
                _recorded.setdefault(name, {})[len(written)] = spread, likely[:count], their[:count]
        return logits


class RecordingWorker:
    """What vLLM's workers answer besides."""

    def rolltree_recorded(self, name: str, start: int, stop: int, forget: Sequence[str]) -> list[Recorded] | None:
        """What stood at the tokens from `start` to `stop` of a request, as far as this worker sampled it; requests to
        forget are over.
        """
        for over in forget:
            _recorded.pop(over, None)
        here = _recorded.get(name)
        return None if here is None else [here[at] for at in range(start, stop) if at in here]
