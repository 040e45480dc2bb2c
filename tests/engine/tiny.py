"""Tiny random models and codecs for engine tests."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from transformers import GPT2Config, LlamaConfig, PreTrainedModel
from transformers.models.gpt2 import GPT2LMHeadModel
from transformers.models.llama import LlamaForCausalLM

from rolltree.engine.local import LocalEngine

VOCAB = 24
LETTERS = "_abcdefghijklmnopqrstuvw"


class Letters:
    """One letter a token; id 0 is eos and has no text. Ids 22 and 23 are the two-letter pieces "xy" and "yz"."""

    vocab_size = VOCAB
    eos_id = 0
    pieces = ("", *LETTERS[1:22], "xy", "yz")

    def encode(self, text: str) -> list[int]:
        return [self.pieces.index(c) for c in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[int(i)] for i in ids)


@functools.cache
def llama(seed: int = 0, spread: float = 0.25) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            eos_token_id=0,
            bos_token_id=0,
        )
    ).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=spread)
    return model


@functools.cache
def gpt2(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=128, eos_token_id=0, bos_token_id=0
    )
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return model


def engine(model: PreTrainedModel | None = None, **knobs: object) -> LocalEngine:
    settings = {"max_batch": 32, "seed": 0} | knobs
    return LocalEngine(model if model is not None else llama(), Letters(), **settings)
