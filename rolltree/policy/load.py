"""Loads a model by name: a registered one, a Hugging Face id, or a folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from rolltree.errors import ModelError
from rolltree.policy.chat_template import with_template
from rolltree.policy.codec import HFCodec
from rolltree.policy.hub import check_code, trusts_code
from rolltree.policy.lora import base_of, merged, whole_model
from rolltree.policy.models import MODELS, model_folder, own_loader
from rolltree.policy.protocol import OwnPolicy
from rolltree.policy.weights import check_sizes, refuse_layers_left_out, refuse_missing, tensors_of


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: the module (training works on it), its channel, and where it came from."""

    model: Any
    """A Hugging Face causal LM, or a module that brings its own policy (`rolltree.policy.protocol.OwnPolicy`)."""
    codec: Any
    """The `HFCodec` of a causal LM, the channel of any other."""
    path: Path
    name: str


def load_model(name: str | Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load a registered name, a folder or a Hugging Face id onto the processor; anything else raises a ModelError.

    Adapters of low rank are merged into the model that they belong to. What is to be trained is loaded in float32.
    """
    path = model_folder(str(name))
    if whole_model(path) != path:
        base = load_model(base_of(path), dtype)
        return LoadedModel(merged(base.model, path), base.codec, path, str(name))
    if (load := own_loader(path)) is not None:
        own = load(path)
        return LoadedModel(own, own.channel, path, str(name))
    check_folder(path)
    try:
        check_sizes(path, AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=trusts_code()))
        with no_progress_bar():
            made: Any = AutoModelForCausalLM.from_pretrained(
                path, dtype=dtype, local_files_only=True, trust_remote_code=trusts_code(), output_loading_info=True
            )
        model, told = made
        tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=trusts_code())
        codec = HFCodec(with_template(tokenizer, path), int(model.config.vocab_size))
    except ModelError:
        raise
    except Exception as error:  # a folder may hold anything, and every part of it is read by code of others
        check_code(path, error)
        raise ModelError(f"The model in {path} cannot be loaded ({_first(error)}); get or save it again.") from error
    refuse_missing(path, told["missing_keys"])
    refuse_layers_left_out(path, told["unexpected_keys"])
    model.eval()
    return LoadedModel(model, codec, path, str(name))


def check_writes_tokens(model: str | Path | LoadedModel, who: str, way: str) -> None:
    """Refuse a model of latents where only language models are served, before anything is started."""
    if isinstance(model, LoadedModel):
        name, latents = model.name, isinstance(model.model, OwnPolicy)
    else:
        name, latents = str(model), own_loader(model_folder(str(model))) is not None
    if latents:
        raise ModelError(f"{who} for language models, and {name} writes latents; {way}")


def load_codec(path: Path) -> Any:
    """The codec (or other channel) of a model in a folder, without the weights of a language model."""
    path = whole_model(path)
    if (load := own_loader(path)) is not None:
        return load(path).channel
    check_folder(path)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=trusts_code())
        config: Any = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=trusts_code())
        return HFCodec(with_template(tokenizer, path), int(config.vocab_size))
    except ModelError:
        raise
    except Exception as error:
        check_code(path, error)
        why = _first(error)
        raise ModelError(f"The tokenizer in {path} cannot be loaded ({why}); get or save the model again.") from error


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
        tensors_of(file)


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of the safetensors files in a folder."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if not files:
        raise ModelError(f"{path} is no folder with *.safetensors weights.")
    state: dict[str, Tensor] = {}
    for file in files:
        tensors_of(file)
        with safe_open(str(file), framework="pt") as reader:  # pyright: ignore[reportUnknownVariableType]
            state.update({key: reader.get_tensor(key) for key in reader.keys()})  # noqa: SIM118
    return state


@contextmanager
def no_progress_bar() -> Generator[None]:
    """Keep transformers from drawing bars for files of a few megabytes, and from reports where we say one sentence."""
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def _first(error: BaseException) -> str:
    """The first line of what an error says."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


__all__ = ["MODELS", "LoadedModel", "check_folder", "load_codec", "load_model", "no_progress_bar", "read_weights"]
