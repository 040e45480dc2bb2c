"""A fast forward for models of the Llama family: Llama, SmolLM2, Qwen2, Qwen2.5 and Qwen3.

Three things make it faster than a general forward at decode time: queries, keys and values come from one product (as
do gate and up), rotary position embedding is one complex product (the rows of the query and key weights are reordered
once so that rotated pairs are neighbours; scores do not change under a common reordering), and keys and values are
written in place into a slab and read as views.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rolltree.policy.decoder import TokenTree
from rolltree.policy.device import HALF
from rolltree.policy.llama_weights import LlamaSpec, copy_weights, empty_weights
from rolltree.policy.shared import Shared, attention
from rolltree.policy.slab import LayerShape, Slab


@dataclass(frozen=True, slots=True)
class _Plan:
    """What all layers of one call share."""

    cis: Tensor
    rows: Tensor
    positions: Tensor
    mask: Tensor | None
    shared: Shared | None


class LlamaDecoder:
    """Decoder (see `rolltree.policy.decoder`) with fused weights of its own; training another copy never changes it."""

    def __init__(self, spec: LlamaSpec, state: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device) -> None:
        self.spec = spec
        self.dtype = dtype
        self.device = device
        self._weights = empty_weights(spec, dtype, device)
        self._cis = torch.empty(0, spec.head_dim // 2, dtype=self._complex, device=device)
        self.load(state)

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        """One shape for every layer."""
        s = self.spec
        return (LayerShape(s.kv_heads, s.head_dim, s.head_dim),) * s.layers

    @property
    def vocab_size(self) -> int:
        """Number of logits."""
        return self.spec.vocab

    @property
    def hidden_size(self) -> int:
        """Width of the last hidden state."""
        return self.spec.hidden

    @property
    def max_context(self) -> int:
        """Positions the model was trained for."""
        return self.spec.max_context

    @property
    def _complex(self) -> torch.dtype:
        return torch.complex128 if self.dtype == torch.float64 else torch.complex64

    @property
    def embeddings(self) -> Tensor:
        """The input embedding."""
        return self._weights.embed

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy a Hugging Face state dict into the fused weights, all or nothing."""
        copy_weights(self.spec, state, self._weights)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states."""
        return F.linear(hidden, self._weights.head)

    @property
    def tables(self) -> tuple[Tensor, ...] | None:
        """The rotations, which grow."""
        return (self._cis,)

    @property
    def shares(self) -> bool:
        """Yes."""
        return True

    @torch.inference_mode()
    def extend(
        self, ids: Tensor, start: Tensor, slab: Slab | None, reach: int, branches: TokenTree | None = None,
        shared: Shared | None = None,
    ) -> Tensor:  # fmt: skip
        """See `Decoder.extend`."""
        rows, new = ids.shape
        positions = start if new == 1 else start.unsqueeze(1) + torch.arange(new, device=ids.device)
        limit = reach if slab is None else slab.capacity
        positions = positions.clamp(max=limit)
        fresh = slab is None or (new > 1 and shared is None and not bool(start.any()))
        if branches is not None:
            places, mask = branches.positions.clamp(max=limit), self._additive(~branches.seen)
        else:
            places, mask = positions, None if fresh else self._mask(positions.view(rows, new), reach)
        if shared is not None:
            places, limit = (
                places + (shared.base if places.dim() == 1 else shared.base.unsqueeze(1)),
                limit + shared.most,
            )
        cis = self._rotations(limit + 1)[places].view(rows, new, 1, -1)
        plan = _Plan(cis, torch.arange(rows, device=ids.device), positions, mask, shared)
        x = F.embedding(ids, self._weights.embed)
        for layer in range(self.spec.layers):
            x = self._layer(layer, x, slab, reach, plan)
        return F.rms_norm(x, (self.spec.hidden,), self._weights.norm, self.spec.eps)

    def _mask(self, positions: Tensor, reach: int) -> Tensor:
        """Additive mask (rows, 1, new, reach): position j is seen from position i where j <= i."""
        return self._additive(torch.arange(reach, device=positions.device) > positions.unsqueeze(-1))

    def _additive(self, hidden: Tensor) -> Tensor:
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, -math.inf)[:, None]

    def _rotations(self, length: int) -> Tensor:
        if length > len(self._cis):
            size = min(max(length, 2 * len(self._cis), 256), max(length, self.spec.max_context + 1))
            angle = torch.arange(size, dtype=torch.float32)[:, None] * torch.tensor(self.spec.inv_freq)
            scale = self.spec.rope_scale
            self._cis = torch.complex(angle.cos() * scale, angle.sin() * scale).to(self.device, self._complex)
        return self._cis

    def _rotate(self, x: Tensor, cis: Tensor) -> Tensor:
        pairs = x if x.dtype in (torch.float32, torch.float64) else x.float()
        turned = torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * cis
        return torch.view_as_real(turned).flatten(-2).to(x.dtype)

    def _layer(self, index: int, x: Tensor, slab: Slab | None, reach: int, plan: _Plan) -> Tensor:
        s, w = self.spec, self._weights.layers[index]
        rows, new, _ = x.shape
        h = F.rms_norm(x, (s.hidden,), w.norm_in, s.eps)
        qkv = F.linear(h, w.qkv, w.qkv_bias).view(rows, new, s.heads + 2 * s.kv_heads, s.head_dim)
        qk, v = qkv[:, :, : s.heads + s.kv_heads], qkv[:, :, s.heads + s.kv_heads :]
        if w.norm_q is not None and w.norm_k is not None:
            q, k = qk.split((s.heads, s.kv_heads), dim=2)
            q, k = F.rms_norm(q, (s.head_dim,), w.norm_q, s.eps), F.rms_norm(k, (s.head_dim,), w.norm_k, s.eps)
            qk = torch.cat((q, k), dim=2)
        qk = self._rotate(qk, plan.cis)
        q, k = qk[:, :, : s.heads], qk[:, :, s.heads :]
        if slab is not None:
            flat = new == 1
            slab.write(index, k[:, 0] if flat else k, v[:, 0] if flat else v, plan.rows, plan.positions)
        if plan.mask is None:
            mixed = _causal(q, k, v)
        else:
            assert slab is not None
            keys, values = slab.keys[index][:, :, :reach], slab.values[index][:, :, :reach]
            if plan.shared is not None:
                mixed = attention(q, keys, values, plan.mask, index, plan.shared)
            else:
                mixed = _decode(q, keys, values, plan.mask) if new == 1 else _masked(q, keys, values, plan.mask)
        x = x + F.linear(mixed.reshape(rows, new, s.heads * s.head_dim), w.out, w.out_bias)
        h = F.rms_norm(x, (s.hidden,), w.norm_mlp, s.eps)
        gate, up = F.linear(h, w.gate_up, w.gate_up_bias).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate).mul_(up), w.down, w.down_bias)


def _decode(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of one new token per row; query heads that share a key head are one small matrix."""
    rows, heads, reach, dim = keys.shape
    group = q.shape[2] // heads
    score = torch.bmm(q.reshape(rows * heads, group, dim), keys.reshape(rows * heads, reach, dim).transpose(1, 2))
    score = score.view(rows, heads, group, reach)
    if score.dtype in HALF:
        # The mask is in half precision too; zero and -inf lose nothing by that.
        score = score.float().mul_(dim**-0.5).add_(mask).softmax(-1).to(q.dtype)
    else:
        score = torch.add(mask, score, alpha=dim**-0.5).softmax(-1)
    return torch.bmm(score.view(rows * heads, group, reach), values.reshape(rows * heads, reach, dim))


def _masked(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    gqa = q.shape[2] != keys.shape[1]
    return F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, mask, enable_gqa=gqa).transpose(1, 2)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)
