"""A model's own forward, run in another way: layers computed again, or another computation in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer

from rolltree.errors import ModelError

# Activation checkpointing of models that run by their own forward, with nothing else of training mode.


def checkpoint_layers(core: Any) -> None:
    """Let each layer be computed again in the backward pass.

    transformers does so for layers in training mode, which would also turn dropout on; so the layers alone are put into
    that mode, and nothing inside them.
    """
    layers = [module for module in core.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers or not getattr(core, "supports_gradient_checkpointing", False):
        raise ModelError(f"a {core.config.model_type} model has no gradient checkpointing; leave it out")
    enable = getattr(core, "activation_checkpointing_enable", None) or core.gradient_checkpointing_enable
    enable({"use_reentrant": False, "preserve_rng_state": False})
    for layer in layers:
        layer.training = True


# Calling a module with another computation in the place of its forward.


def through(module: Any, run: Callable[..., Any], *inputs: Any) -> Any:
    """What `run` returns, with everything around it that surrounds the module's own forward.

    FSDP2 gathers a module's weights in a hook before its forward and frees them in one behind it, and finds in inputs
    and outputs where its backward pass begins and ends: so tensors go in as `inputs` and come out in tuples.
    """
    module.forward = run
    try:
        return module(*inputs)
    finally:
        del module.forward
