"""Chooses the decoder for a Hugging Face model."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from rolltree.policy.decoder import Decoder
from rolltree.policy.foreign import ForeignDecoder
from rolltree.policy.llama import LlamaDecoder
from rolltree.policy.llama_weights import spec_of, why_not_native


def decoder_of(model: PreTrainedModel, dtype: torch.dtype, device: torch.device) -> Decoder:
    """The native decoder where it covers the model's architecture, the model's own forward elsewhere.

    Either holds a copy of the weights: training `model` changes nothing here until its weights are loaded.
    """
    if why_not_native(model.config):
        return ForeignDecoder(model, dtype, device)
    return LlamaDecoder(spec_of(model), model.state_dict(), dtype, device)
