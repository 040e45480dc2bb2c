"""Low-rank adapters through peft (extra `lora`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedModel

from rolltree.policy.decoder import ModelError
from rolltree.policy.weights import refuse_missing, tensors_of


def with_lora(model: PreTrainedModel, *, rank: int, alpha: float, targets: Sequence[str]) -> PreTrainedModel:
    """Wrap a model so that only low-rank adapters of the named linear layers train (arXiv 2106.09685)."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ModelError("LoRA needs the package peft; install rolltree[lora].") from None
    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    missing = sorted(set(targets) - present)
    if missing:
        raise ModelError(f"the model has no layer named {missing[0]!r} to adapt; name layers it has")
    # peft scales by alpha / r and takes fractions too, whatever its annotation says.
    scale: Any = alpha
    config: Any = LoraConfig(r=rank, lora_alpha=scale, target_modules=list(targets), lora_dropout=0.0, bias="none")
    return cast(PreTrainedModel, get_peft_model(cast(Any, model), config))


def load_lora(model: PreTrainedModel, folder: Path) -> None:
    """Load a checkpoint's adapters into a model wrapped by `with_lora`."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    file = folder / "adapter_model.safetensors"
    held = tensors_of(file)
    wanted: dict[str, Any] = get_peft_model_state_dict(cast(Any, model))
    refuse_missing(folder, wanted.keys() - held.keys())
    for name, tensor in wanted.items():
        if held[name] != tuple(tensor.shape):
            raise ModelError(f"Adapter {name!r} in {folder} has shape {held[name]}, but the model has another rank.")
    told: Any = set_peft_model_state_dict(cast(Any, model), load_file(file))
    if told.unexpected_keys:
        raise ModelError(f"checkpoint {folder} holds {told.unexpected_keys[0]}, which the model does not have")
