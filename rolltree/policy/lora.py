"""Low-rank adapters through peft (extra `lora`)."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedModel

from rolltree.errors import ModelError
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.packed import Packed
from rolltree.policy.protocol import PolicyRead
from rolltree.policy.weights import refuse_missing, tensors_of
from rolltree.tree.store.values import read_json

# A policy's own model with its adapters switched off: a reference policy that costs no second model.


class Unadapted(LanguagePolicy):
    """What the policy was before its adapters learned anything."""

    def __init__(self, policy: LanguagePolicy) -> None:
        self.model, self.device = policy.model, policy.device
        self.attention, self.compute, self.max_context = policy.attention, policy.compute, policy.max_context

    def read(self, packed: Packed, *, entropy: bool = False, logits: bool = False, watch: bool = False) -> PolicyRead:
        """See `LanguagePolicy.read`."""
        with self._switched_off():
            return super().read(packed, entropy=entropy, logits=logits, watch=watch)

    def states(self, packed: Packed) -> Tensor:
        """See `LanguagePolicy.states`."""
        with self._switched_off():
            return super().states(packed)

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing: its weights never change and are those of the model that the run began with."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take."""

    def _switched_off(self) -> Any:
        wrapped: Any = self.model
        return wrapped.disable_adapter()


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def with_lora(model: PreTrainedModel, *, rank: int, alpha: float, targets: Sequence[str]) -> PreTrainedModel:
    """Wrap a model so that only low-rank adapters of the named linear layers train (arXiv 2106.09685)."""
    peft = _peft()
    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    missing = sorted(set(targets) - present)
    if missing:
        raise ModelError(f"the model has no layer named {missing[0]!r} to adapt; name layers it has")
    # peft scales by alpha / r and takes fractions too, whatever its annotation says.
    scale: Any = alpha
    config: Any = peft.LoraConfig(r=rank, lora_alpha=scale, target_modules=list(targets), lora_dropout=0.0, bias="none")
    # Whoever loads a checkpoint's adapters finds the model by this, from whatever folder.
    base: Any = model
    place = Path(base.name_or_path)
    if base.name_or_path and place.is_dir():
        base.name_or_path = str(place.resolve())
    with _without_deprecations():
        return cast(PreTrainedModel, peft.get_peft_model(base, config))


def save_weights(model: Any, folder: Path) -> None:
    """Save what a model of transformers, a wrapped one or one of ours trains."""
    # Otherwise peft looks for the model below, on the hub too, to see whether its embedding has grown; none ever does.
    model.save_pretrained(folder, **({"save_embedding_layers": False} if hasattr(model, "peft_config") else {}))


def load_lora(model: PreTrainedModel, folder: Path) -> None:
    """Load a checkpoint's adapters into a model wrapped by `with_lora`."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    _check_adapters(model, folder)
    told: Any = set_peft_model_state_dict(cast(Any, model), load_file(folder / WEIGHTS))
    if told.unexpected_keys:
        raise ModelError(f"checkpoint {folder} holds {told.unexpected_keys[0]}, which the model does not have")


def _check_adapters(model: Any, folder: Path) -> None:
    """Refuse a folder that lacks adapters of the model, or holds them in another shape: they would add nothing."""
    from peft import get_peft_model_state_dict

    held = tensors_of(folder / WEIGHTS)
    wanted: dict[str, Any] = get_peft_model_state_dict(model, save_embedding_layers=False)
    refuse_missing(folder, wanted.keys() - held.keys())
    for name, tensor in wanted.items():
        if held[name] != tuple(tensor.shape):
            raise ModelError(f"Adapter {name!r} in {folder} has shape {held[name]}, but the model has another rank.")


def holds_adapters(folder: Path) -> bool:
    """Whether a folder holds adapters instead of a model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def whole_model(folder: Path) -> Path:
    """The folder of a model that is under adapters, of which some may lie on others; itself where it holds none."""
    below = [folder]
    while holds_adapters(below[-1]):
        below.append(base_of(below[-1]))
        if below[-1] in below[:-1]:
            place = below[-1] / CONFIG
            raise ModelError(f"The adapters in {folder} belong to themselves; name their model in {place}.")
    return below[-1]


def base_named(folder: Path) -> str:
    """The name of the model that a folder's adapters belong to, or of the adapters that they were trained on."""
    place = folder / CONFIG
    try:
        return str(read_json(place.read_text())["base_model_name_or_path"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ModelError(f"{place} cannot be read ({error}); save the adapters again.") from error


def base_of(folder: Path) -> Path:
    """The folder of what `base_named` names."""
    from rolltree.policy.models import model_folder

    place, named = folder / CONFIG, base_named(folder)
    try:
        return model_folder(named)
    except ModelError as error:
        raise ModelError(
            f"The adapters in {folder} belong to the model {named!r}, which is not there; put it there, or write where "
            f"it is as base_model_name_or_path into {place}."
        ) from error


def merged(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with a folder's adapters added to its weights."""
    peft = _peft()
    try:
        with _without_deprecations():
            wrapped: Any = peft.PeftModel.from_pretrained(model, str(folder))
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"The adapters in {folder} do not fit their model ({first}); save them again.") from error
    _check_adapters(wrapped, folder)
    whole: Any = wrapped.merge_and_unload()
    # Adapters that are trained on it belong to it, not to the model below it.
    whole.name_or_path = str(folder.resolve())
    return cast(PreTrainedModel, whole.eval().requires_grad_(True))


@contextmanager
def _without_deprecations() -> Generator[None]:
    """peft reads a name that transformers says it will drop, which is not for who trains to mend."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise ModelError("LoRA needs the package peft; install rolltree[lora].") from None
    return peft
