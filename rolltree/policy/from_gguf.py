"""Converts a Llama-architecture GGUF file into a Hugging Face folder: safetensors weights, config, tokenizer.

GGUF stores query and key rows with rotary pairs as neighbours; Hugging Face wants the two halves apart. The tokenizer
is byte-level BPE rebuilt from the vocabulary and merges in the file. transformers reads the same weights to the bit,
but its tokenizer of such a file does not split digits, and so encodes numbers unlike the model was trained.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, PreTrainedTokenizerFast

from rolltree.errors import ModelError

Field = Callable[[str], Any]

_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL = 3


def convert_gguf(file: Path, folder: Path) -> None:
    """Write `folder` from a GGUF file, weights in float16."""
    try:
        from gguf import GGUFReader
        from gguf.quants import dequantize
    except ImportError as error:
        raise ModelError("Reading GGUF needs an extra: pip install 'rolltree[smollm2]'.") from error
    reader = GGUFReader(file)

    def field(name: str) -> Any:
        found = reader.get_field(name)
        if found is None:
            raise ModelError(f"{file.name} has no field {name!r}; only Llama-architecture GGUF files are supported.")
        return found.contents()

    if field("general.architecture") != "llama" or field("tokenizer.ggml.model") != "gpt2":
        raise ModelError(f"{file.name} is not a Llama-architecture model with a byte-level BPE tokenizer.")
    weights: dict[str, Tensor] = {}
    for tensor in reader.tensors:
        name = hf_name(tensor.name)
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            values = split_pairs(values, field("llama.attention.head_count" + ("_kv" if "k_proj" in name else "")))
        weights[name] = torch.from_numpy(np.ascontiguousarray(values.astype(np.float16)))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _config(field, tied="lm_head.weight" not in weights).save_pretrained(folder)
    _tokenizer(field).save_pretrained(folder)


def hf_name(name: str) -> str:
    """Hugging Face name of a GGUF tensor."""
    body, _, kind = name.rpartition(".")
    if body in _OUTER:
        return f"{_OUTER[body]}.{kind}"
    parts = body.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in _NAMES:
        return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.{kind}"
    raise ModelError(f"The GGUF file holds {name!r}, which is not part of a Llama model.")


def split_pairs(weight: np.ndarray[Any, np.dtype[np.float32]], heads: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Undo GGUF's row order (rotary pairs as neighbours) of a query or key matrix."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _config(field: Field, *, tied: bool) -> LlamaConfig:
    heads, hidden = field("llama.attention.head_count"), field("llama.embedding_length")
    return LlamaConfig(
        vocab_size=field("llama.vocab_size"),
        hidden_size=hidden,
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=field("llama.attention.head_count_kv"),
        head_dim=hidden // heads,
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=round(field("llama.attention.layer_norm_rms_epsilon"), 12),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        tie_word_embeddings=tied,
        bos_token_id=field("tokenizer.ggml.bos_token_id"),
        eos_token_id=field("tokenizer.ggml.eos_token_id"),
        pad_token_id=field("tokenizer.ggml.padding_token_id"),
        architectures=["LlamaForCausalLM"],
        dtype="float16",
    )


def _tokenizer(field: Field) -> PreTrainedTokenizerFast:
    tokens: list[str] = field("tokenizer.ggml.tokens")
    kinds: list[int] = field("tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ", 1)) for m in field("tokenizer.ggml.merges")]
    bpe = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    split_digits = [pre_tokenizers.Digits(individual_digits=True)] if field("tokenizer.ggml.pre") == "smollm" else []
    bpe.pre_tokenizer = pre_tokenizers.Sequence([*split_digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL])

    def token(which: str) -> str:
        return tokens[field(f"tokenizer.ggml.{which}_token_id")]

    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=token("bos"),
        eos_token=token("eos"),
        unk_token=token("unknown"),
        pad_token=token("padding"),
        chat_template=field("tokenizer.chat_template"),
        model_max_length=field("llama.context_length"),
    )
