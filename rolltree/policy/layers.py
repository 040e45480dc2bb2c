"""Activation checkpointing of models that run by their own forward, with nothing else of training mode."""

from __future__ import annotations

from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer

from rolltree.policy.errors import ModelError


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
