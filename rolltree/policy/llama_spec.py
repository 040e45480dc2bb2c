"""Reads a Hugging Face config into the few numbers the fast forward needs, or says why it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

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
