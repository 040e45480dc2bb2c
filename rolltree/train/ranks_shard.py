"""One rank's part of a learner: parameters and optimizer state are cut over ranks with FSDP2 (arXiv 2304.11277).

Weights are whole during a step and cut between steps. Gradients gather on the whole weights of each rank, however many
micro-batches it has, and are summed once per update: folding has divided by the whole batch's weights already. Blocks
are gathered and summed one by one, so what is sent stands in memory beside what it is made of for one block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from rolltree.policy.language import LanguagePolicy, core_of

T = TypeVar("T")


class Sharded:
    """The ranks of the default process group as a `Team`."""

    def share(self, mine: T) -> list[T]:
        """See `Team.share`."""
        everybody: list[T | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, mine)
        return cast("list[T]", everybody)

    def unite(self, policy: LanguagePolicy) -> None:
        """Gather the weights, unless they are whole."""
        for part in _parts(policy):
            part.unshard()

    def reduce(self, policy: LanguagePolicy) -> None:
        """Sum the gradients and keep this rank's part.

        FSDP2 does so behind a backward pass through the model's own forward, which packed rows do not take. One token
        whose loss counts nothing takes it, so that a rank without micro-batches has a backward pass too.
        """
        _summing(policy, True)
        (_token(policy) * 0.0).backward()
        _summing(policy, False)

    def clip(self, policy: LanguagePolicy, limit: float) -> float:
        """See `Team.clip`."""
        norm = torch.nn.utils.clip_grad_norm_(list(policy.parameters()), limit)
        return float(_whole(norm))

    def weights(self, policy: LanguagePolicy) -> dict[str, Tensor]:
        """See `Team.weights`."""
        return {name: _whole(value) for name, value in policy.model.state_dict().items()}


def shard(policy: LanguagePolicy) -> None:
    """Cut a policy's parameters over the ranks; every rank holds the same whole ones before."""
    core: Any = core_of(policy.model)
    mesh = init_device_mesh(policy.device.type, (dist.get_world_size(),))
    kinds: set[str] = set(core._no_split_modules or ())
    for module in [*(m for m in core.modules() if type(m).__name__ in kinds), cast(Any, policy.model)]:
        fully_shard(module, mesh=mesh, reshard_after_forward=False)
    for part in _parts(policy):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        # Guessing what a backward pass needs next goes by the passes before it, of which ranks make unequal numbers.
        part.set_modules_to_backward_prefetch([part])
    # The whole model's first pass tells its blocks that they are parts of it; packed rows may run a block by itself.
    with torch.no_grad():
        _token(policy)
    for part in _parts(policy):
        part.reshard()
    _summing(policy, False)


def trained_weights(policy: LanguagePolicy) -> dict[str, Tensor]:
    """The trained parameters, whole."""
    return {name: _whole(p.detach()) for name, p in policy.model.named_parameters() if p.requires_grad}


@torch.no_grad()
def load_weights(policy: LanguagePolicy, whole: Mapping[str, Tensor]) -> None:
    """Take this rank's part of a whole state dict."""
    for name, mine in policy.model.state_dict().items():
        mine.copy_(_cut(whole[name], mine))


def whole_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimizer's state as it is without ranks."""
    return _mapped(optimizer, lambda value, _: _whole(value), optimizer.state_dict())


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Take this rank's part of a whole state."""
    optimizer.load_state_dict(_mapped(optimizer, _cut, state))


def _mapped(
    optimizer: torch.optim.Optimizer, change: Callable[[Tensor, Tensor], Tensor], state: Mapping[str, Any]
) -> dict[str, Any]:
    """The state with every tensor of its parameter's own shape changed; the optimizer numbers parameters in order."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    changed = {
        i: {k: change(v, parameters[i]) if v.shape == parameters[i].shape else v for k, v in own.items()}
        for i, own in state["state"].items()
    }
    return {**state, "state": changed}


def _parts(policy: LanguagePolicy) -> list[FSDPModule]:
    """The blocks that are gathered and summed by themselves; the model, which has the rest, is the first."""
    model: Any = policy.model
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def _summing(policy: LanguagePolicy, last: bool) -> None:
    """Whether a backward pass ends the update: then gradients are summed and weights are cut again."""
    whole = _parts(policy)[0]
    whole.set_requires_gradient_sync(last)
    whole.set_reshard_after_backward(last)


def _token(policy: LanguagePolicy) -> Tensor:
    """A number that the model's own forward computes from one token."""
    token = torch.zeros(1, 1, dtype=torch.int64, device=policy.device)
    model: Any = policy.model
    return model(input_ids=token, use_cache=False).logits.sum()


def _whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _cut(whole: Tensor, like: Tensor) -> Tensor:
    """The part of a tensor that `like` is of its own; every rank has the whole one, so none is sent."""
    if not isinstance(like, DTensor):
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
