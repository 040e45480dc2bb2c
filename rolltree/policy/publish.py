"""Handing the trained weights to an engine under a new version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rolltree.policy.protocol import Policy


def weights_of(policy: Policy) -> Mapping[str, Tensor]:
    """What an engine takes of a policy. Tensors may be the live ones: an engine copies what it takes."""
    return policy.weights()


@torch.no_grad()
def merged_weights(core: Any) -> dict[str, Tensor]:
    """The state dict of a causal LM, with low-rank adapters merged into copies of what they adapt."""
    live: Mapping[str, Tensor] = core.state_dict()
    state: dict[str, Tensor] = {}
    adapted: dict[str, Tensor] = {}
    for name, module in core.named_modules():
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
            delta = sum(module.get_delta_weight(a) for a in module.active_adapters)
            adapted[f"{name}.weight"] = module.base_layer.weight + delta
    for name, value in live.items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        state[plain] = adapted.get(plain, value)
    return state
