"""The trained forward of Llama-family models: transformers' own layers and weights, with the glue between them fused.

On small models the many little operations around the matrix products cost as much as the products. Here a norm, a
rotation and a gated product are one autograd node each, and the last layer's output projection and feed-forward run for
the rows that are read. Linear layers are called as modules, so biases and adapters take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from rolltree.policy.attention import Attend
from rolltree.policy.device import HALF
from rolltree.policy.forward import through
from rolltree.policy.llama_weights import why_not_native


def covers(model: PreTrainedModel) -> bool:
    """Whether this forward computes exactly what the model's own does."""
    core: Any = model
    if why_not_native(core.config) or core.model.training or getattr(core.model, "gradient_checkpointing", False):
        return False
    # Somebody's own norm or rotary module may compute anything; only transformers' are known here.
    norms = {type(m).__name__ for n, m in core.model.named_modules() if n.endswith("norm")}
    return all(name.endswith("RMSNorm") for name in norms)


def hidden_states(
    model: PreTrainedModel, tokens: Tensor, position: Tensor, attend: Attend, reads: Tensor, *,
    checkpointing: bool = False,
) -> Tensor:  # fmt: skip
    """Last hidden states (U, hidden) at `reads` of one packed row."""
    return continued(model, tokens, position, attend, reads, None, checkpointing=checkpointing)[0]


Past = Sequence[tuple[Tensor, Tensor]]
"""Keys and values (kv heads, C, D) of every layer."""


def continued(
    model: PreTrainedModel, tokens: Tensor, position: Tensor, attend: Attend, reads: Tensor, past: Past | None, *,
    checkpointing: bool = False,
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:  # fmt: skip
    """The same of rows behind those whose keys and values are given, and the keys and values of these rows."""
    core: Any = model
    trunk = core.model
    tokens, spread = _distinct(tokens)
    x: Tensor = trunk.embed_tokens(tokens)
    # Angles in half precision would move far positions.
    cos, sin = (t[0] for t in trunk.rotary_emb(x[:0].float() if x.dtype in HALF else x, position[None]))
    layers = list(trunk.layers)
    own: list[tuple[Tensor, Tensor]] = []
    for i, layer in enumerate(layers):
        last = reads if i == len(layers) - 1 else None
        inputs = (layer, x, (cos, sin), attend, last, None if past is None else past[i], None if i else spread)
        # Pieces run backward inside a backward pass, where a module's own hooks do not find their way.
        call = partial(through, layer, _states) if past is None else _layer
        if checkpointing and torch.is_grad_enabled():
            told = checkpoint(call, *inputs, use_reentrant=False, preserve_rng_state=False)
        else:
            told = call(*inputs)
        if past is None:
            x = cast(Tensor, told)
        else:
            x, k, v = cast("tuple[Tensor, Tensor, Tensor]", told)
            own.append((k, v))
    return _norm(trunk.norm, x), own


def _distinct(tokens: Tensor) -> tuple[Tensor, Tensor | None]:
    """Each token once and where each row finds its own, where that halves the rows; else all, as they stand.

    What the first layer projects knows nothing of positions, so equal tokens share it. On a card sums over rows that
    share one would not repeat exactly.
    """
    if tokens.device.type != "cpu":
        return tokens, None
    once, spread = tokens.unique(return_inverse=True)
    return (once, spread) if 2 * len(once) <= len(tokens) else (tokens, None)


def _states(*inputs: Any) -> Tensor:
    """One block's output alone."""
    return _layer(*inputs)[0]


def _layer(
    layer: Any, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend, reads: Tensor | None,
    past: tuple[Tensor, Tensor] | None, spread: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One block; its output for all rows, or those of `reads`, and its own keys and values (kv heads, N, D).

    With `spread`, x are distinct rows and these say which of them each row is.
    """
    attention, mlp = layer.self_attn, layer.mlp
    cos, sin = rotation
    h = _norm(layer.input_layernorm, x)
    q, k, v = (
        _split(project(h), attention.head_dim) for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if hasattr(attention, "q_norm"):
        q, k = _norm(attention.q_norm, q), _norm(attention.k_norm, k)
    if spread is not None:
        x, q, k, v = (t.index_select(0, spread) for t in (x, q, k, v))
    q, k = _Rotate.apply(q, cos, sin), _Rotate.apply(k, cos, sin)
    q, k, v = (cast(Tensor, t).transpose(0, 1) for t in (q, k, v))
    keys, values = k, v
    if past is not None and past[0].shape[1]:
        keys, values = torch.cat((past[0], k), 1), torch.cat((past[1], v), 1)
    mixed = attend(q, keys, values, attention.scaling)
    mixed = mixed.transpose(0, 1).reshape(len(x), -1)
    if reads is not None:
        mixed, x = mixed.index_select(0, reads), x.index_select(0, reads)
    x = x + attention.o_proj(mixed)
    h = _norm(layer.post_attention_layernorm, x)
    return x + mlp.down_proj(_Gated.apply(mlp.gate_proj(h), mlp.up_proj(h))), k, v


def _split(x: Tensor, head_dim: int) -> Tensor:
    return x.view(len(x), -1, head_dim)


def _norm(module: Any, x: Tensor) -> Tensor:
    return _RmsNorm.apply(x, module.weight, module.variance_epsilon)  # pyright: ignore[reportReturnType]


class _RmsNorm(torch.autograd.Function):
    """RMS norm (arXiv 1910.07467); of half precision in float32, as transformers does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float() if x.dtype in HALF else x
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        unit = wide * scale
        ctx.save_for_backward(unit.to(x.dtype), scale, weight)
        return (unit * weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        unit, scale, weight = ctx.saved_tensors
        g = grads[0].to(scale.dtype)
        inner = g * unit
        dweight = inner.reshape(-1, inner.shape[-1]).sum(0)
        along = (inner @ weight.to(inner.dtype)).unsqueeze(-1).div_(unit.shape[-1])
        return torch.addcmul(g * weight, unit.to(g.dtype), along, value=-1).mul_(scale), dweight, None


class _Rotate(torch.autograd.Function):
    """Rotary embedding of (N, heads, D) by (N, D) cosines and sines (RoFormer, arXiv 2104.09864, eq. 34)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(grads[0], cos, -sin), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    out = x * cos[:, None]
    out[..., :half].addcmul_(x[..., half:], sin[:, None, :half], value=-1)
    out[..., half:].addcmul_(x[..., :half], sin[:, None, half:])
    return out


class _Gated(torch.autograd.Function):
    """silu(gate) · up (Shazeer 2020, arXiv 2002.05202)."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        lifted = F.silu(gate)
        ctx.save_for_backward(gate, up, lifted)
        return lifted * up

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        gate, up, lifted = ctx.saved_tensors
        g = grads[0]
        return torch.ops.aten.silu_backward(g * up, gate), lifted * g
