"""The whole weights of a trainer's model, also where FSDP or DeepSpeed has cut it over the processes.

Gathering is a collective: every process takes part, in the same order. TRL asks all of them for rollouts after the same
step, so all of them gather there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from rolltree.integrations.errors import AdaptError
from rolltree.policy.language import LanguagePolicy, core_of
from rolltree.policy.publish import weights_of


def is_cut(trainer: Any) -> bool:
    """Whether a process holds only a part of the weights."""
    return trainer._dist.is_fsdp or trainer._dist.is_zero3


@torch.no_grad()
def whole_weights(trainer: Any) -> dict[str, Tensor]:
    """The weights of the causal LM in full, adapters merged into what they adapt.

    Live tensors where the model is whole, copies where it is cut.
    """
    model, dist = unwrapped(trainer), trainer._dist
    if dist.fsdp_version == 1:
        raise AdaptError(
            "Rolltree's embedded engine does not gather weights from FSDP's first version; set "
            "fsdp_config={'version': 2}, or let TRL hand the weights to vLLM (use_vllm=True)"
        )
    # "dense" leaves the model's attention as TRL set it.
    with dist.gather_params(list(model.parameters())):
        state = weights_of(LanguagePolicy(model, attention="dense"))
        return _copies(state.items()) if is_cut(trainer) else dict(state)


def whole_model(trainer: Any, state: dict[str, Tensor]) -> PreTrainedModel:
    """A causal LM with these weights; the trainer's own where it is whole."""
    core = core_of(unwrapped(trainer))
    if not is_cut(trainer):
        return core
    plain = next(kind for kind in type(core).__mro__ if not issubclass(kind, FSDPModule))
    # Its class, not `from_config`, which DeepSpeed makes cut the new one as well.
    whole: PreTrainedModel = plain(copy.deepcopy(core.config)).to(core.dtype)
    missing, unknown = whole.load_state_dict(state, strict=False)
    tied = set(getattr(whole, "_tied_weights_keys", None) or ())
    if unknown or set(missing) - tied:
        raise AdaptError(f"the gathered weights do not fit {plain.__name__}: {[*missing, *unknown][:3]} do not match")
    whole.tie_weights()
    return whole


def unwrapped(trainer: Any) -> Any:
    """The model without what trains it in several processes."""
    return trainer.accelerator.unwrap_model(trainer.model)


def _copies(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name: _full(value.detach()) for name, value in tensors}


def _full(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value.clone()
