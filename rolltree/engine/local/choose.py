"""From logits to one new token per row: hooks, the draw, and the numbers recorded about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.batch import Asking, DecodeBatch, Ints
from rolltree.engine.local.sampling import draw, uniforms
from rolltree.engine.protocol import EngineError

# What a decoding step brings from the device to the program, in one copy: each one waits for all that was computed.

Numbers = np.ndarray[Any, np.dtype[Any]]


def fetch(*tensors: Tensor) -> list[Numbers]:
    """Tensors of one device as arrays; from an accelerator as float64, which holds ids and float32 exactly."""
    if all(t.device.type == "cpu" for t in tensors):
        return [t.numpy() for t in tensors]
    return together(*tensors)


def together(*tensors: Tensor) -> list[Numbers]:
    """The same through one row of numbers."""
    flat = torch.cat([t.reshape(-1).double() for t in tensors]).cpu().numpy()
    edges = np.cumsum([t.numel() for t in tensors])[:-1]
    return [part.reshape(t.shape) for part, t in zip(np.split(flat, edges), tensors, strict=True)]


def choose(logits: Tensor, batch: DecodeBatch, version: int, rows: Ints | None = None) -> dict[int, EngineError]:
    """Write one token to every row of the batch, or to some; return the rows that cannot go on, with the reason.

    `logits` has a row for each of them. `logp`, entropy and alternatives describe the policy (raw logits at temperature
    1); `sampling_logprob` describes the distribution the token was drawn from, after hook, temperature and truncation.
    """
    asking = batch.asking(logits.device, rows)
    rows = asking.rows
    at = batch.length[rows]
    failures: dict[int, EngineError] = {}
    adjusted = _hooked(logits, batch, asking, failures)
    u = uniforms(batch.key[rows], at - batch.begin[rows])
    drawn = draw(adjusted, asking.distribution, torch.from_numpy(u).to(logits.device))
    norm = torch.logsumexp(logits, -1)
    logp = logits.gather(1, drawn.token.unsqueeze(1)).squeeze(1) - norm
    token, own, distribution, finite, *extras = fetch(
        drawn.token, logp.float(), drawn.sampling_logprob.float(), torch.isfinite(norm),
        *_extras(logits, norm, batch, asking),
    )  # fmt: skip
    for row in rows[finite == 0].tolist():
        failures.setdefault(row, EngineError(f"The logits are not finite under weight version {version}."))
    _note(extras, batch, asking)
    batch.ids[rows, at], batch.logp[rows, at], batch.sampling_logprob[rows, at] = token, own, distribution
    batch.version[rows, at] = version
    batch.length[rows] += 1
    return failures


def _hooked(logits: Tensor, batch: DecodeBatch, asking: Asking, failures: dict[int, EngineError]) -> Tensor:
    """Logits after the hooks of the rows that have one; a hook that fails ends its own run only."""
    out = logits
    for i in asking.hook:
        row = int(asking.rows[i])
        hook = batch.runs[row].request.sampling.hook
        assert hook is not None
        if out is logits:
            out = logits.clone()
        so_far = batch.ids[row, batch.begin[row] : batch.length[row]].tolist()
        try:
            out[i] = _checked(hook(so_far, logits[i].clone()), logits[i])
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


def _extras(logits: Tensor, norm: Tensor, batch: DecodeBatch, asking: Asking) -> list[Tensor]:
    """Entropy, and ids and log-probs of alternatives, of the rows that asked for them."""
    out: list[Tensor] = []
    if places := asking.entropy:
        table = logits[places] - norm[places].unsqueeze(1)
        out.append(torch.special.entr(table.exp()).sum(-1).float())
    if places := asking.top:
        most = max(batch.runs[row].top for row in asking.rows[places].tolist())
        value, index = (logits[places] - norm[places].unsqueeze(1)).topk(most, dim=-1)
        out += [index, value.float()]
    return out


def _note(extras: list[Numbers], batch: DecodeBatch, asking: Asking) -> None:
    left = iter(extras)
    if places := asking.entropy:
        rows = asking.rows[places]
        batch.entropy[rows, batch.length[rows]] = next(left)
    if places := asking.top:
        for row, ids, logp in zip(asking.rows[places].tolist(), next(left), next(left), strict=True):
            batch.note_top(row, ids, logp)
