"""Rows as the samples of TRL's asynchronous trainer, which carry their own advantage, version and group.

A sample has one advantage for all its trained tokens. A row whose credit differs along the path becomes one sample per
value: the same tokens, with a mask on those that have it. TRL sums over trained tokens and forwards shared ones once,
so the gradient is that of the row; credit that differs from token to token costs as many samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rolltree.engine.protocol import Codec
from rolltree.integrations.rows import Row


def samples(rows: Iterable[Row], codec: Codec, *, version: int, group: int, at: float) -> list[RolloutSample]:
    """The samples of one prompt's rows; rows that do not teach become none."""
    out: list[RolloutSample] = []
    for row in rows:
        if not row.loss_mask:
            continue
        ids = np.asarray([*row.prompt, *row.completion], np.int64)
        mask, credit = np.asarray(row.mask, np.int64), np.asarray(row.advantage, np.float32)
        logp = np.concatenate([np.zeros(len(row.prompt)), row.logp]).astype(np.float32)
        reward = math.nan if row.reward is None else row.reward
        told: dict[str, Any] = {
            "prompt": [{"role": "user", "content": codec.decode(row.prompt)}],
            "completion": [{"role": "assistant", "content": codec.decode(row.completion)}],
        }
        for value in np.unique(credit[mask == 1]).tolist():
            here = np.concatenate([np.zeros(len(row.prompt), np.int64), mask * (credit == np.float32(value))])
            sample = RolloutSample(
                **told, input_ids=ids, completion_mask=here, old_log_probs=logp, advantage=float(value),
                model_version=version, group_id=group, metrics={"reward": reward}, enqueued_at=at,
            )  # fmt: skip
            out.append(sample)
    return out
