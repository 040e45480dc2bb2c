"""Loads a model by name: a registered one, a Hugging Face id, or a folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from rolltree.policy.codec import HFCodec
from rolltree.policy.decoder import ModelError
from rolltree.policy.lora import base_of, holds_adapters, merged
from rolltree.policy.models import MODELS, model_folder
from rolltree.policy.trust import check_code, trusts_code


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: the Hugging Face module (training works on it), its codec, and where it came from."""

    model: PreTrainedModel
    codec: HFCodec
    path: Path
    name: str


def load_model(name: str | Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load a registered name, a folder or a Hugging Face id onto the processor; anything else raises a ModelError.

    Adapters of low rank are merged into the model that they belong to. What is to be trained is loaded in float32.
    """
    path = model_folder(str(name))
    if holds_adapters(path):
        base = load_model(base_of(path), dtype)
        return LoadedModel(merged(base.model, path), base.codec, path, str(name))
    check_folder(path)
    try:
        with no_progress_bar():
            model: Any = AutoModelForCausalLM.from_pretrained(
                path, dtype=dtype, local_files_only=True, trust_remote_code=trusts_code()
            )
        tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=trusts_code())
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        check_code(path, error)
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"The model in {path} cannot be loaded ({first}); get or save it again.") from error
    model.eval()
    return LoadedModel(model, HFCodec(tokenizer, int(model.config.vocab_size)), path, str(name))


def load_codec(path: Path) -> HFCodec:
    """The codec of a model in a folder, without its weights."""
    if holds_adapters(path):
        return load_codec(base_of(path))
    check_folder(path)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=trusts_code())
        config: Any = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=trusts_code())
    except (OSError, ValueError, KeyError, TypeError) as error:
        check_code(path, error)
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"The tokenizer in {path} cannot be loaded ({first}); get or save the model again.") from error
    return HFCodec(tokenizer, int(config.vocab_size))


def check_folder(path: Path) -> None:
    """Raise one clear line if a folder is no whole model: files missing, empty, cut short or not what they claim."""
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} has no config.json, so it is not a model folder.")
    if not any(
        (path / n).is_file() for n in ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    ):
        raise ModelError(f"{path} has no tokenizer; save it next to the model.")
    weights = sorted(path.glob("*.safetensors"))
    if not weights and not list(path.glob("*.bin")):
        raise ModelError(f"{path} has no weights (*.safetensors); it was written only in part. Get or save it again.")
    for file in weights:
        _keys(file)


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of the safetensors files in a folder."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if not files:
        raise ModelError(f"{path} is no folder with *.safetensors weights.")
    state: dict[str, Tensor] = {}
    for file in files:
        _keys(file)
        with safe_open(str(file), framework="pt") as reader:  # pyright: ignore[reportUnknownVariableType]
            state.update({key: reader.get_tensor(key) for key in reader.keys()})  # noqa: SIM118
    return state


@contextmanager
def no_progress_bar() -> Generator[None]:
    """Keep transformers from drawing bars for files of a few megabytes."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _keys(file: Path) -> list[str]:
    try:
        with safe_open(str(file), framework="pt") as reader:  # pyright: ignore[reportUnknownVariableType]
            return [str(k) for k in reader.keys()]  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} is corrupt or half-written ({error}); get or save the model again.") from error


__all__ = ["MODELS", "LoadedModel", "check_folder", "load_codec", "load_model", "read_weights"]
