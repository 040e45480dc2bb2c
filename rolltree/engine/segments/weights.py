"""Weights on their way to another process: written once to a folder that both see, in memory where the system can."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from rolltree.engine.protocol import EngineError
from rolltree.tree.store.atomic import naming

_SHARED = Path("/dev/shm")


@contextmanager
def handed_over(weights: Any) -> Generator[Path]:
    """What `update_weights` takes (a state dict, a module or a folder) as a folder of safetensors for a while."""
    if isinstance(weights, (str, Path)):
        if not list(Path(weights).glob("*.safetensors")):
            raise EngineError(f"{weights} is no folder with *.safetensors weights.")
        yield Path(weights).resolve()
        return
    with folder_of(state_of(weights), "model.safetensors") as place:
        yield place


@contextmanager
def folder_of(state: Mapping[str, Tensor], name: str) -> Generator[Path]:
    """A folder with these tensors in a file of this name, for a while."""
    where = _SHARED if _SHARED.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="rolltree-weights-", dir=where) as place:
        with naming(Path(place)):
            save_file(_plain(state), Path(place) / name)
        yield Path(place)


def state_of(weights: Any) -> Mapping[str, Tensor]:
    """The tensors of a model or a state dict."""
    state: Any = weights.state_dict() if isinstance(weights, torch.nn.Module) else weights
    if not isinstance(state, Mapping):
        raise EngineError(f"Weights must be a state dict, a model or a folder, not {type(weights).__name__}.")
    return cast("Mapping[str, Tensor]", state)


def _plain(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of their own: safetensors refuses those that share memory, as tied embeddings do."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in state.items()}
