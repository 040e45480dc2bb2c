"""Handing the trained weights to an engine under a new version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rolltree.policy.protocol import Policy


def weights_of(policy: Policy) -> Mapping[str, Tensor]:
    """What an engine takes of a policy. Tensors may be the live ones: an engine copies what it takes."""
    return policy.weights()


class AdaptedWeights(Mapping[str, Tensor]):
    """Weights of a model under low-rank adapters: to who reads them the whole state dict, merged when it is first read;
    `adapters` are alone what training changes.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._whole: dict[str, Tensor] | None = None

    @property
    def config(self) -> Any:
        """peft's description of the adapters."""
        return self._wrapped.peft_config[self._wrapped.active_adapter]

    @property
    def adapters(self) -> dict[str, Tensor]:
        """The adapters' live tensors, named as peft saves them."""
        from peft import get_peft_model_state_dict

        return get_peft_model_state_dict(self._wrapped, save_embedding_layers=False)

    @property
    def _merged(self) -> dict[str, Tensor]:
        if self._whole is None:
            self._whole = merged_weights(self._wrapped.get_base_model())
        return self._whole

    def __getitem__(self, name: str) -> Tensor:
        return self._merged[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._merged)

    def __len__(self) -> int:
        return len(self._merged)

    def __reduce__(self) -> tuple[type[dict[str, Tensor]], tuple[dict[str, Tensor]]]:
        # To another process go the weights, not the model.
        return dict, (self._merged,)


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
