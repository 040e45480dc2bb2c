"""Fused weights of a Llama-family model and the all-or-nothing copy from a Hugging Face state dict."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from rolltree.errors import ModelError

# Reads a Hugging Face config into the few numbers the fast forward needs, or says why it cannot.

NATIVE_TYPES = ("llama", "qwen2", "qwen3")
"""Values of `model_type` the fast forward covers."""

FIXED_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary scalings whose frequencies do not depend on the length of the sequence."""


@dataclass(frozen=True, slots=True)
class LlamaSpec:
    """Shape and constants of a Llama-family model."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    eps: float
    max_context: int
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    head_norms: bool
    """Whether queries and keys are normalised per head (Qwen3)."""
    inv_freq: tuple[float, ...]
    rope_scale: float


def why_not_native(config: PreTrainedConfig) -> str:
    """Why the fast forward cannot run this config; "" where it can."""
    c: Any = config
    if c.model_type not in NATIVE_TYPES:
        return f"model type {c.model_type!r} is not one of {', '.join(NATIVE_TYPES)}"
    if c.hidden_act != "silu":
        return f"activation {c.hidden_act!r} is not 'silu'"
    rope: dict[str, Any] = c.rope_parameters
    if rope.get("rope_type", "default") not in FIXED_ROPES:
        return f"rotary scaling {rope['rope_type']!r} depends on the sequence's length"
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        return "only part of each head is rotated"
    if any(kind != "full_attention" for kind in getattr(c, "layer_types", None) or ()):
        return "some layers do not attend to the whole prefix"
    return ""


def spec_of(model: PreTrainedModel) -> LlamaSpec:
    """The spec of a loaded model for which `why_not_native` is empty."""
    c: Any = model.config
    rotary: Any = model.get_submodule("model.rotary_emb")
    qwen = c.model_type in ("qwen2", "qwen3")
    bias = bool(getattr(c, "attention_bias", False))
    return LlamaSpec(
        vocab=c.vocab_size,
        hidden=c.hidden_size,
        layers=c.num_hidden_layers,
        heads=c.num_attention_heads,
        kv_heads=c.num_key_value_heads,
        head_dim=getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
        inner=c.intermediate_size,
        eps=c.rms_norm_eps,
        max_context=c.max_position_embeddings,
        tied=bool(c.tie_word_embeddings),
        qkv_bias=c.model_type == "qwen2" or bias,
        out_bias=c.model_type != "qwen2" and bias,
        mlp_bias=not qwen and bool(c.mlp_bias),
        head_norms=c.model_type == "qwen3",
        inv_freq=tuple(float(f) for f in rotary.inv_freq.float().tolist()),
        rope_scale=float(rotary.attention_scaling),
    )


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One block. Rows of `qkv` are the query heads, then key heads, then value heads; of `gate_up` gate, then up."""

    norm_in: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    norm_q: Tensor | None
    norm_k: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    norm_mlp: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Weights:
    """The whole model; `head` is `embed` itself where they are tied."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor


def empty_weights(spec: LlamaSpec, dtype: torch.dtype, device: torch.device) -> Weights:
    """Uninitialised storage."""

    def new(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    s = spec
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    embed = new(s.vocab, s.hidden)
    layers = tuple(
        LayerWeights(
            norm_in=new(s.hidden),
            qkv=new(q + 2 * kv, s.hidden),
            qkv_bias=new(q + 2 * kv) if s.qkv_bias else None,
            norm_q=new(s.head_dim) if s.head_norms else None,
            norm_k=new(s.head_dim) if s.head_norms else None,
            out=new(s.hidden, q),
            out_bias=new(s.hidden) if s.out_bias else None,
            norm_mlp=new(s.hidden),
            gate_up=new(2 * s.inner, s.hidden),
            gate_up_bias=new(2 * s.inner) if s.mlp_bias else None,
            down=new(s.hidden, s.inner),
            down_bias=new(s.hidden) if s.mlp_bias else None,
        )
        for _ in range(s.layers)
    )
    return Weights(embed, layers, new(s.hidden), embed if s.tied else new(s.vocab, s.hidden))


@torch.no_grad()
def copy_weights(spec: LlamaSpec, state: Mapping[str, Tensor], weights: Weights) -> None:
    """Copy a state dict into the fused storage; a missing, misshapen or unknown tensor raises and changes nothing."""
    places = list(_places(spec, weights))
    for name, target, _ in places:
        if name not in state:
            raise ModelError(f"The weights lack {name!r}; the model needs all {len(places)} of its tensors.")
        if state[name].shape != target.shape:
            found, wanted = tuple(state[name].shape), tuple(target.shape)
            raise ModelError(f"Weight {name!r} has shape {found}, but this model has {wanted}: not the same model.")
    known = [name for name, _, _ in places]
    ignored = {"lm_head.weight"} if spec.tied else set[str]()
    for name in state.keys() - set(known) - ignored:
        if not name.endswith("inv_freq"):
            near = difflib.get_close_matches(name, known, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ModelError(f"The weights hold {name!r}, which this model does not have{hint}.")
    for name, target, pairs in places:
        source = state[name]
        target.copy_(_neighbours(source, spec.head_dim) if pairs else source)


def _neighbours(weight: Tensor, dim: int) -> Tensor:
    """Reorder each head's rows so that the two halves that rotate together are neighbours."""
    heads = weight.unflatten(0, (-1, 2, dim // 2))
    return heads.transpose(1, 2).flatten(0, 2)


def _places(s: LlamaSpec, weights: Weights) -> Iterator[tuple[str, Tensor, bool]]:
    """Name in the state dict, where it goes, and whether its rows are rotary pairs."""
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    yield "model.embed_tokens.weight", weights.embed, False
    yield "model.norm.weight", weights.norm, False
    if not s.tied:
        yield "lm_head.weight", weights.head, False
    for i, w in enumerate(weights.layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", w.norm_in, False
        yield at + "post_attention_layernorm.weight", w.norm_mlp, False
        for kind, fused in (("weight", w.qkv), ("bias", w.qkv_bias)):
            if fused is not None:
                yield f"{at}self_attn.q_proj.{kind}", fused[:q], True
                yield f"{at}self_attn.k_proj.{kind}", fused[q : q + kv], True
                yield f"{at}self_attn.v_proj.{kind}", fused[q + kv :], False
        for kind, fused in (("weight", w.gate_up), ("bias", w.gate_up_bias)):
            if fused is not None:
                yield f"{at}mlp.gate_proj.{kind}", fused[: s.inner], False
                yield f"{at}mlp.up_proj.{kind}", fused[s.inner :], False
        for name, tensor, pairs in (
            ("self_attn.o_proj.weight", w.out, False),
            ("self_attn.o_proj.bias", w.out_bias, False),
            ("self_attn.q_norm.weight", w.norm_q, True),
            ("self_attn.k_norm.weight", w.norm_k, True),
            ("mlp.down_proj.weight", w.down, False),
            ("mlp.down_proj.bias", w.down_bias, False),
        ):
            if tensor is not None:
                yield at + name, tensor, pairs
