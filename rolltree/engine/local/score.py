"""Log-probs of given tokens, many requests at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.sampling import wide
from rolltree.engine.protocol import Scored
from rolltree.policy.decoder import Decoder
from rolltree.tree.node import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ScoreJob:
    """Score ids[start:]; the result goes to `done`."""

    ids: np.ndarray[tuple[int], np.dtype[np.int64]]
    start: int
    entropy: bool
    hidden: bool
    done: asyncio.Future[Scored]


def take(jobs: list[ScoreJob], most: int) -> list[ScoreJob]:
    """Remove and return the next batch: similar lengths, padded size at most `most` tokens (or one job)."""
    jobs.sort(key=lambda job: len(job.ids))
    count = 1
    while count < len(jobs) and (count + 1) * len(jobs[count].ids) <= most:
        count += 1
    batch = jobs[:count]
    del jobs[:count]
    return batch


@torch.inference_mode()
def score(decoder: Decoder, jobs: list[ScoreJob], version: int, most_logits: int) -> list[Scored]:
    """Score a batch in one forward; logits are made for the scored positions only, a bounded number at a time."""
    width = max(len(job.ids) for job in jobs)
    ids = torch.zeros(len(jobs), width, dtype=torch.long)
    for i, job in enumerate(jobs):
        ids[i, : len(job.ids)] = torch.from_numpy(job.ids)
    ids = ids.to(decoder.device)
    hidden = decoder.extend(ids, torch.zeros(len(jobs), dtype=torch.long, device=decoder.device), None, width)
    rows = np.concatenate([np.full(len(j.ids) - j.start, i) for i, j in enumerate(jobs)])
    columns = np.concatenate([np.arange(j.start, len(j.ids)) for j in jobs])
    row, column = torch.from_numpy(rows).to(decoder.device), torch.from_numpy(columns).to(decoder.device)
    want_entropy = any(j.entropy for j in jobs)
    before, token = hidden[row, column - 1], ids[row, column]
    logp, entropy = _measure(decoder, before, token, most_logits, want_entropy=want_entropy)
    out, at = list[Scored](), 0
    for i, job in enumerate(jobs):
        part = slice(at, at := at + len(job.ids) - job.start)
        last = hidden[i, len(job.ids) - 1].float().cpu().numpy() if job.hidden else None
        kept = entropy[part].copy() if entropy is not None and job.entropy else None
        out.append(Scored(logp[part].copy(), version, kept, last))
    return out


def _measure(
    decoder: Decoder, before: Tensor, token: Tensor, most: int, *, want_entropy: bool
) -> tuple[FloatArray, FloatArray | None]:
    """Log-probs (and entropies) of tokens given the states before them, `most` logits at a time."""
    size = max(1, most // decoder.vocab_size)
    logps, entropies = [torch.empty(0)], [torch.empty(0)]
    for state, chosen in zip(before.split(size), token.split(size), strict=True):
        table = torch.log_softmax(wide(decoder.logits(state)), -1)
        logps.append(table.gather(1, chosen.unsqueeze(1)).squeeze(1).float().cpu())
        if want_entropy:
            entropies.append(torch.special.entr(table.exp()).sum(-1).float().cpu())
    return torch.cat(logps).numpy(), torch.cat(entropies).numpy() if want_entropy else None
