"""From logits to one new token per row: hooks, the draw, and the numbers recorded about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.batch import DecodeBatch
from rolltree.engine.local.sampling import draw
from rolltree.engine.local.streams import uniforms
from rolltree.engine.protocol import EngineError


def choose(logits: Tensor, batch: DecodeBatch, version: int) -> dict[int, EngineError]:
    """Write one token to every row of the batch; return the rows that cannot go on, with the reason.

    `logp`, entropy and alternatives describe the policy (raw logits at temperature 1); `sampling_logprob` describes
    the distribution the token was drawn from, after hook, temperature and truncation.
    """
    n = len(batch)
    rows, at = np.arange(n), batch.length[:n]
    failures: dict[int, EngineError] = {}
    adjusted = _hooked(logits, batch, failures)
    u = uniforms(batch.key[:n], at - batch.begin[:n])
    drawn = draw(adjusted, batch.distribution(logits.device), torch.from_numpy(u).to(logits.device))
    norm = torch.logsumexp(logits, -1)
    logp = logits.gather(1, drawn.token.unsqueeze(1)).squeeze(1) - norm
    for row in torch.nonzero(~torch.isfinite(norm)).squeeze(1).tolist():
        failures.setdefault(row, EngineError(f"The logits are not finite under weight version {version}."))
    _extras(logits, norm, batch)
    batch.ids[rows, at] = drawn.token.cpu().numpy()
    batch.logp[rows, at] = logp.float().cpu().numpy()
    batch.sampling_logprob[rows, at] = drawn.sampling_logprob.float().cpu().numpy()
    batch.version[rows, at] = version
    batch.length[:n] += 1
    return failures


def _hooked(logits: Tensor, batch: DecodeBatch, failures: dict[int, EngineError]) -> Tensor:
    """Logits after the hooks of the rows that have one; a hook that fails ends its own run only."""
    out = logits
    for row in batch.asking.hook:
        hook = batch.runs[row].request.sampling.hook
        assert hook is not None
        if out is logits:
            out = logits.clone()
        so_far = batch.ids[row, batch.begin[row] : batch.length[row]].tolist()
        try:
            out[row] = _checked(hook(so_far, logits[row].clone()), logits[row])
        except EngineError as error:
            failures[row] = error
        except Exception as error:  # user code: anything may come, and it must not end other runs
            failures[row] = EngineError(f"The logits hook raised {type(error).__name__}: {error}")
            failures[row].__cause__ = error
    return out


def _checked(new: Any, old: Tensor) -> Tensor:
    logits = torch.as_tensor(new).to(old)
    if logits.shape != old.shape:
        raise EngineError(f"The logits hook returned shape {tuple(logits.shape)} instead of {tuple(old.shape)}.")
    if bool(torch.isnan(logits).any()) or not bool(torch.isfinite(logits).any()) or bool((logits == torch.inf).any()):
        raise EngineError("The logits hook left no token to draw (all -inf) or returned NaN or +inf.")
    return logits


def _extras(logits: Tensor, norm: Tensor, batch: DecodeBatch) -> None:
    """Entropy and alternatives of the rows that asked for them."""
    rows = batch.asking.entropy
    if rows:
        table = logits[rows] - norm[rows].unsqueeze(1)
        batch.entropy[rows, batch.length[rows]] = torch.special.entr(table.exp()).sum(-1).float().cpu().numpy()
    rows = batch.asking.top
    if rows:
        most = max(batch.runs[row].top for row in rows)
        value, index = (logits[rows] - norm[rows].unsqueeze(1)).topk(most, dim=-1)
        ids, logp = index.cpu().numpy(), value.float().cpu().numpy()
        for i, row in enumerate(rows):
            batch.note_top(row, ids[i], logp[i])
