"""From logits to one new token per row: hooks, the draw, and the numbers recorded about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.batch import DecodeBatch
from rolltree.engine.local.fetch import Numbers, fetch
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
    token, own, distribution, finite, *extras = fetch(
        drawn.token, logp.float(), drawn.sampling_logprob.float(), torch.isfinite(norm), *_extras(logits, norm, batch)
    )
    for row in np.flatnonzero(finite == 0).tolist():
        failures.setdefault(row, EngineError(f"The logits are not finite under weight version {version}."))
    _note(extras, batch)
    batch.ids[rows, at], batch.logp[rows, at], batch.sampling_logprob[rows, at] = token, own, distribution
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
        except BaseException as error:  # user code: anything may come, and it must not end other runs
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


def _extras(logits: Tensor, norm: Tensor, batch: DecodeBatch) -> list[Tensor]:
    """Entropy, and ids and log-probs of alternatives, of the rows that asked for them."""
    out: list[Tensor] = []
    if rows := batch.asking.entropy:
        table = logits[rows] - norm[rows].unsqueeze(1)
        out.append(torch.special.entr(table.exp()).sum(-1).float())
    if rows := batch.asking.top:
        most = max(batch.runs[row].top for row in rows)
        value, index = (logits[rows] - norm[rows].unsqueeze(1)).topk(most, dim=-1)
        out += [index, value.float()]
    return out


def _note(extras: list[Numbers], batch: DecodeBatch) -> None:
    left = iter(extras)
    if rows := batch.asking.entropy:
        batch.entropy[rows, batch.length[rows]] = next(left)
    if rows := batch.asking.top:
        for row, ids, logp in zip(rows, next(left), next(left), strict=True):
            batch.note_top(row, ids, logp)
