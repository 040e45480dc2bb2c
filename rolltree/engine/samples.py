"""Samples put together, cut and empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rolltree.engine.protocol import Sample
from rolltree.tree.node import Finish, Top, join_actions


def join(parts: Sequence[Sample]) -> Sample:
    """Increments as one sample, which ends as the last of them does."""
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    masked = any(p.keep is not None for p in parts)
    entropies, tops = [p.entropy for p in parts if p.entropy is not None], [p.top for p in parts if p.top is not None]
    return replace(
        last,
        actions=join_actions([p.actions for p in parts]),
        logp=np.concatenate([p.logp for p in parts]),
        sampling_logprob=np.concatenate([p.sampling_logprob for p in parts]),
        version=np.concatenate([p.version for p in parts]),
        entropy=np.concatenate(entropies) if entropies else None,
        top=Top(np.concatenate([t.ids for t in tops]), np.concatenate([t.logp for t in tops])) if tops else None,
        keep=np.concatenate([np.ones(len(p.actions), np.bool_) if p.keep is None else p.keep for p in parts])
        if masked
        else None,
        # Each increment repeats the prefix's cost or says 0; it was paid once.
        prefilled=max(p.prefilled for p in parts),
    )


def cut(sample: Sample, start: int, stop: int | None = None) -> Sample:
    """The tokens of a sample from start to stop, with everything that belongs to them."""
    piece = slice(start, stop)
    top = sample.top
    return replace(
        sample, actions=sample.actions[piece], logp=sample.logp[piece], sampling_logprob=sample.sampling_logprob[piece],
        version=sample.version[piece], entropy=None if sample.entropy is None else sample.entropy[piece],
        top=None if top is None else Top(top.ids[piece], top.logp[piece]),
        keep=None if sample.keep is None else sample.keep[piece],
    )  # fmt: skip


def nothing(finish: Finish) -> Sample:
    """A sample without a token."""
    none = np.zeros(0, np.float32)
    return Sample(np.zeros(0, np.int32), none, none, np.zeros(0, np.int32), finish)
