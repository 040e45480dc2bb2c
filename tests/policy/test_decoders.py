"""Decoders against the models they stand for: whole texts, cached rows of different lengths, new weights."""

import pytest
import torch
from transformers import (
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto import AutoModelForCausalLM

from rolltree.errors import ModelError
from rolltree.policy.foreign import ForeignDecoder, decoder_of
from rolltree.policy.llama import LlamaDecoder
from rolltree.policy.slab import Slab

CPU = torch.device("cpu")
IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
SHAPE = IDS | {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}

NATIVE = {
    "llama": LlamaConfig(**SHAPE),
    "llama-tied": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "llama-one-kv-head": LlamaConfig(**{**SHAPE, "num_key_value_heads": 1}),
    "llama3-rope": LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE),
    "llama-linear-rope": LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "llama-yarn-biases": LlamaConfig(**SHAPE, rope_parameters=YARN, attention_bias=True, mlp_bias=True),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16),
}
FOREIGN = {
    "gpt2": GPT2Config(**IDS, vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "opt": OPTConfig(
        **IDS,
        vocab_size=61,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    ),
    "cohere": CohereConfig(**SHAPE),
    "granite": GraniteConfig(**SHAPE, logits_scaling=3.0),
}
CONFIGS = NATIVE | FOREIGN


def model_of(config, seed=0):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def gap(a, b):
    return float((a - b).abs().max() / b.abs().max())


def positions(n):
    return torch.zeros(n, dtype=torch.long)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_the_models_whole_pieced_and_cached(name):
    model = model_of(CONFIGS[name])
    decoder = decoder_of(model, torch.float32, CPU)
    assert isinstance(decoder, LlamaDecoder if name in NATIVE else ForeignDecoder)
    ids = torch.randint(0, 61, (3, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        truth = model(ids).logits
    assert gap(decoder.logits(decoder.extend(ids, positions(3), None, 20)), truth) < 1e-4
    slab = Slab.zeros(decoder.shapes, 3, 24, decoder.dtype, CPU)
    decoder.extend(ids[:, :19], positions(3), slab, 19)
    at = torch.tensor([19, 12, 7])
    row = torch.arange(3)
    one = decoder.logits(decoder.extend(ids[row, at].unsqueeze(1), at, slab, 20))[:, 0]
    assert gap(one, truth[row, at]) < 1e-4
    piece = decoder.logits(decoder.extend(ids[:, 5:15], torch.full((3,), 5), slab, 15))
    assert gap(piece, truth[:, 5:15]) < 1e-4


@pytest.mark.parametrize("name", CONFIGS)
def test_new_weights_are_taken_in_place_and_all_or_nothing(name):
    decoder = decoder_of(model_of(CONFIGS[name]), torch.float32, CPU)
    ids = torch.arange(10)[None]
    before = decoder.logits(decoder.extend(ids, positions(1), None, 10))
    other = model_of(CONFIGS[name], seed=1)
    state = dict(other.state_dict())
    last = sorted(state)[-1]
    for broken in (
        {k: v for k, v in state.items() if k != last},
        state | {last: state[last][:-1]},
        state | {"model.extra.weight": torch.ones(1)},
    ):
        with pytest.raises(ModelError):
            decoder.load(broken)
    assert torch.equal(decoder.logits(decoder.extend(ids, positions(1), None, 10)), before)
    decoder.load(state)
    with torch.no_grad():
        assert gap(decoder.logits(decoder.extend(ids, positions(1), None, 10)), other(ids).logits) < 1e-4


def test_padding_beyond_the_capacity_is_harmless():
    model = model_of(NATIVE["llama"])
    decoder = decoder_of(model, torch.float32, CPU)
    ids = torch.randint(0, 61, (2, 16), generator=torch.Generator().manual_seed(2))
    slab = Slab.zeros(decoder.shapes, 2, 16, decoder.dtype, CPU)
    decoder.extend(ids[:, :15], positions(2), slab, 15)
    # Row 0 reads six tokens from 10 on; row 1 one token at 15, and five of padding past the end.
    block = torch.stack([ids[0, 10:16], torch.cat([ids[1, 15:], torch.zeros(5, dtype=torch.long)])])
    hidden = decoder.extend(block, torch.tensor([10, 15]), slab, 16)
    with torch.no_grad():
        truth = model(ids).logits
    assert gap(decoder.logits(hidden[0]), truth[0, 10:]) < 1e-4
    assert gap(decoder.logits(hidden[1, 0]), truth[1, 15]) < 1e-4


NEO = GPTNeoConfig(
    **IDS,
    vocab_size=61,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    window_size=8,
    max_position_embeddings=64,
    attention_types=[[["global", "local"], 1]],
)


@pytest.mark.parametrize("config", [Gemma2Config(**SHAPE, head_dim=8), MistralConfig(**SHAPE, sliding_window=8), NEO])
def test_models_with_sliding_windows_are_refused_by_name(config):
    with pytest.raises(ModelError, match=config.model_type):
        decoder_of(model_of(config), torch.float32, CPU)


def test_what_the_native_forward_does_not_cover_runs_foreign():
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64}
    for extra in ({"hidden_act": "gelu"}, {"rope_parameters": dynamic}):
        assert isinstance(decoder_of(model_of(LlamaConfig(**SHAPE, **extra)), torch.float32, CPU), ForeignDecoder)


def test_rows_of_a_batch_do_not_share_rotations_that_depend_on_the_longest():
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [4.0] * 4, "short_factor": [1.0] * 4}
    rope["original_max_position_embeddings"] = 16
    config = Phi3Config(**SHAPE, sliding_window=None, rope_parameters=rope, original_max_position_embeddings=16)
    model = model_of(config)
    decoder = decoder_of(model, torch.float32, CPU)
    assert decoder.max_context == 16
    ids = torch.randint(1, 61, (2, 32), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        both = decoder.extend(ids, torch.zeros(2, dtype=torch.long), None, 32)
        alone = model(input_ids=ids[1:, :8]).logits
        torch.testing.assert_close(decoder.logits(both[1:, :8]), alone, atol=1e-4, rtol=1e-4)
