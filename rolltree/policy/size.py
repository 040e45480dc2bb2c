"""How large a model is, read off its config: nothing is loaded for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from rolltree.errors import ModelError
from rolltree.policy.device import free_memory
from rolltree.policy.hub import trusts_code

# How long a text a model reads in one and the same way, whatever stands beside it in a batch or a tree.

USUAL = 2048
"""Positions of a model whose config names none."""


def exact_context(config: Any) -> int:
    """Most tokens of a path of which every one sees all before it, by rotations that do not depend on the length.

    Below the model's own context where a sliding window is narrower, or where "longrope" changes the rotations of all
    positions as soon as any text of a forward is longer than the model was first trained for.
    """
    most = int(getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or USUAL)
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        most = min(most, int(rope.get("original_max_position_embeddings") or most))
    return min(most, window_of(config) or most)


def window_of(config: Any) -> int:
    """Tokens that each one sees of those before it, itself included; 0 = all."""
    slides = getattr(config, "use_sliding_window", True)
    return int(getattr(config, "sliding_window", None) or 0) if slides else 0


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Counts of numbers, not of bytes."""

    parameters: int
    layers: int
    hidden: int
    inner: int
    queries: int
    """Width of a token's queries, all heads together."""
    kv: int
    """Numbers that a token leaves in the caches of all layers."""
    vocab: int
    context: int
    linear: tuple[tuple[str, int], ...]
    """Last name of each linear layer and the sum of its two widths."""

    def adapters(self, rank: int, targets: Sequence[str]) -> int:
        """Numbers in low-rank adapters of these layers."""
        return rank * sum(widths for name, widths in self.linear if name in targets)


def size_of(config: Any) -> ModelSize:
    """The size of a model with this config."""
    text = config.get_text_config()
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trusts_code())
    heads = int(text.num_attention_heads)
    dim = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    layers, shared = int(text.num_hidden_layers), int(getattr(text, "num_key_value_heads", None) or heads)
    return ModelSize(
        sum(p.numel() for p in model.parameters()), layers, int(text.hidden_size),
        int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size), heads * dim, 2 * layers * shared * dim,
        int(text.vocab_size), exact_context(text),
        tuple((n.rsplit(".", 1)[-1], m.in_features + m.out_features) for n, m in model.named_modules()
              if isinstance(m, nn.Linear)),
    )  # fmt: skip


def size_in(folder: Path) -> ModelSize | None:
    """The size of a model in a folder; None where its config says too little, which loading it then judges."""
    try:
        return size_of(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusts_code()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError):
        return None


def gigabytes(count: float) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.3g} GB"


def check_sampled(size: ModelSize, name: str, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a model whose weights and two whole contexts do not fit where it is to be sampled."""
    weights, cache = size.parameters * dtype.itemsize, 2 * size.context * size.kv * dtype.itemsize
    free = free_memory(device)
    if weights > free:
        half = " or bfloat16" if dtype == torch.float32 else ""
        raise ModelError(
            f"{name} needs about {gigabytes(weights + cache)} on {device} to be sampled ({gigabytes(weights)} of "
            f"weights) and {gigabytes(free)} are free; choose a smaller model{half}, or another device"
        )
