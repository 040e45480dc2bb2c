"""One rank's part of a learner: parameters, gradients and optimizer state are cut over ranks with FSDP2 (arXiv
2304.11277).

A pass gathers the weights of each block before the block computes and frees them behind it, forward and backward; its
gradients are summed over ranks as soon as they are there, and each rank keeps its part. So a rank holds its parts of
everything and the whole of one block. All ranks make the same passes, because each of them takes all ranks. Gradients
are summed, not averaged: folding has divided by the whole batch's weights already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from rolltree.policy.device import Compute
from rolltree.policy.language import Attention, LanguagePolicy, core_of
from rolltree.policy.packed import blank
from rolltree.policy.protocol import Policy

T = TypeVar("T")


class Sharded:
    """The ranks of the default process group as a `Team`."""

    def share(self, mine: T) -> list[T]:
        """See `Team.share`."""
        everybody: list[T | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, mine)
        return cast("list[T]", everybody)

    def unite(self, policy: Policy) -> None:
        """Passes gather what they need, but those of pieces find weights whole and leave gradients whole."""
        if policy.compute.piece:
            _summing(policy, last=False)
            for part in _parts(policy.model):
                part.unshard()

    def reduce(self, policy: Policy) -> None:
        """Passes have done so; after those of pieces a blank one does it for them."""
        if policy.compute.piece:
            _summing(policy, last=True)
            _blank_pass(policy)

    def clip(self, policy: Policy, limit: float) -> float:
        """See `Team.clip`."""
        norm = torch.nn.utils.clip_grad_norm_(list(policy.parameters()), limit)
        return float(_whole(norm))


@dataclass(frozen=True, slots=True)
class ModelOutline:
    """A policy without its weights: what is sent to other ranks and cut there."""

    model: Any
    attention: Attention
    compute: Compute
    max_context: int

    @classmethod
    def of(cls, policy: LanguagePolicy) -> ModelOutline:
        """That of a whole policy."""
        model: Any = policy.model
        bare = {id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in model.parameters()}
        return cls(deepcopy(model, cast("dict[int, Any]", bare)), policy.attention, policy.compute, policy.max_context)


class RankPolicy(LanguagePolicy):
    """A policy that is cut over the ranks; the driver has looked at the whole one already."""

    def __init__(self, form: ModelOutline, device: torch.device, weights: Mapping[str, Tensor] | None) -> None:
        self.model, self.device = form.model, device
        self.attention, self.compute = form.attention, form.compute
        self.max_context = form.max_context
        shard(self.model, device)
        load_weights(self.model, weights)
        if not any(True for _ in self.parameters()):
            # Without a way back nothing is kept, so rows need no pieces.
            self.compute = replace(self.compute, piece=0)
        else:
            # FSDP2 takes note of which weights are trained in the first pass, and adapters may be off in the next one.
            _blank_pass(self)
            self.model.zero_grad(set_to_none=True)


def shard(model: Any, device: torch.device) -> None:
    """Cut an outline's parameters over the ranks; what they hold is for `load_weights` to say."""
    core: Any = core_of(model)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    kinds: set[str] = set(core._no_split_modules or ())
    for module in [m for m in core.modules() if type(m).__name__ in kinds]:
        fully_shard(module, mesh=mesh)
    # What stands outside the blocks stays whole between a pass and its way back, if there is one.
    fully_shard(model, mesh=mesh, reshard_after_forward=not any(p.requires_grad for p in model.parameters()))
    fixed = [(m, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    model.to_empty(device=device)
    for module, name, value in fixed:
        module._buffers[name] = value.to(device)
    for part in _parts(model):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        part.set_reduce_scatter_unused_params(True)
        if device.type == "cpu":
            # Nothing is sent while a processor computes, so a block that is gathered early would only take memory.
            part.set_modules_to_backward_prefetch([part])


def _blank_pass(policy: Policy) -> None:
    (policy.read(blank()).logp.sum() * 0.0).backward()


def _parts(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def _summing(policy: Policy, *, last: bool) -> None:
    """Whether a pass ends the update: then gradients are summed and weights are cut again."""
    whole = _parts(policy.model)[0]
    whole.set_requires_gradient_sync(last)
    whole.set_reshard_after_backward(last)
    for part in _parts(policy.model):
        part.set_reshard_after_forward(last and part is not whole, recurse=False)


@torch.no_grad()
def load_weights(model: Any, whole: Mapping[str, Tensor] | None) -> None:
    """Take this rank's part of a whole state dict, which rank 0 has; one tensor is sent at a time."""
    for name, mine in model.state_dict().items():
        mine.copy_(_cut(_from_first(None if whole is None else whole[name], mine), mine))


@torch.no_grad()
def gather_trained(model: Any, into: Any | None) -> None:
    """Write the trained parameters into those of a whole model, which rank 0 has; one stands whole at a time."""
    goal = None if into is None else dict(into.named_parameters())
    for name, mine in model.named_parameters():
        if mine.requires_grad:
            whole = _whole(mine.detach())
            if goal is not None:
                goal[name].copy_(whole)


def whole_state(model: Any, *, keep: bool) -> dict[str, Tensor]:
    """A model's whole state dict, in this machine's memory, for the rank that keeps it."""
    out: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        whole = _whole(value)
        if keep:
            out[name] = whole.cpu()
    return out


def whole_optimizer(optimizer: torch.optim.Optimizer, *, keep: bool) -> dict[str, Any]:
    """An optimizer's state as it is without ranks, for the rank that keeps it."""

    def gathered(value: Tensor, _: Tensor) -> Tensor | None:
        whole = _whole(value)
        return whole.cpu() if keep else None

    return _mapped(optimizer, gathered, optimizer.state_dict())


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any] | None) -> None:
    """Take this rank's part of a whole state, which rank 0 has; one tensor is sent at a time."""
    whole: list[Tensor] = []

    def told(value: Tensor, _: Tensor) -> _Told:
        whole.append(value)
        return _Told(value.dtype)

    form = Sharded().share(None if state is None else _mapped(optimizer, told, state))[0]
    parameters = _parameters(optimizer)
    assert form is not None
    for i, own in form["state"].items():
        for key, value in own.items():
            if isinstance(value, _Told):
                mine = torch.empty_like(parameters[i], dtype=value.dtype)
                own[key] = _cut(_from_first(whole.pop(0) if whole else None, mine), mine)
    optimizer.load_state_dict(form)


@dataclass(frozen=True, slots=True)
class _Told:
    """Stands for a tensor of its parameter's shape that is sent by itself."""

    dtype: torch.dtype


def _mapped(
    optimizer: torch.optim.Optimizer, change: Callable[[Tensor, Tensor], Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """The state with every tensor of its parameter's own shape changed; the optimizer numbers parameters in order."""
    parameters = _parameters(optimizer)
    changed = {
        i: {k: change(v, parameters[i]) if v.shape == parameters[i].shape else v for k, v in own.items()}
        for i, own in state["state"].items()
    }
    return {**state, "state": changed}


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _from_first(whole: Tensor | None, like: Tensor) -> Tensor:
    """Rank 0's tensor, on every rank."""
    if whole is None:
        full = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    else:
        full = whole.detach().to(like.device, like.dtype).contiguous()
    dist.broadcast(full, 0)
    return full


def _whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _cut(whole: Tensor, like: Tensor) -> Tensor:
    """The part of a tensor that `like` is of its own; every rank has the whole one, so none is sent."""
    if not isinstance(like, DTensor):
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
