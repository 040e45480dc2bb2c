"""GGUF conversion: names, the order of rotary rows, and (where fetched) the real small model."""

import asyncio

import numpy as np
import pytest
import torch

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Request, Sampling
from rolltree.errors import ModelError
from rolltree.policy.from_gguf import convert_gguf, hf_name, split_pairs
from rolltree.policy.load import load_model
from rolltree.policy.models import present


def test_names():
    assert hf_name("token_embd.weight") == "model.embed_tokens.weight"
    assert hf_name("blk.11.attn_q.weight") == "model.layers.11.self_attn.q_proj.weight"
    assert hf_name("blk.0.ffn_norm.weight") == "model.layers.0.post_attention_layernorm.weight"
    with pytest.raises(ModelError, match=r"blk\.0\.ssm\.weight"):
        hf_name("blk.0.ssm.weight")


def test_rotary_rows_come_apart_head_by_head():
    pairs = np.array([[0], [2], [1], [3], [10], [12], [11], [13]], np.float32)
    assert split_pairs(pairs, 2)[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_small_file_converts_to_the_model_it_came_from(tmp_path):
    gguf = pytest.importorskip("gguf")
    torch.manual_seed(0)
    heads, dim, hidden, vocab = 2, 8, 16, 12
    tensors = {
        "token_embd.weight": torch.randn(vocab, hidden),
        "output_norm.weight": torch.rand(hidden) + 0.5,
        "blk.0.attn_norm.weight": torch.rand(hidden) + 0.5,
        "blk.0.ffn_norm.weight": torch.rand(hidden) + 0.5,
        **{f"blk.0.attn_{n}.weight": torch.randn(heads * dim, hidden) for n in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{n}.weight": torch.randn(hidden, hidden) for n in ("gate", "up", "down")},
    }
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_vocab_size(vocab)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(hidden)
    writer.add_block_count(1)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_context_length(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<eos>", "a", "b", "c", "ab", "abc", "Ġ", "1", "2", "Ġa", "d", "e"])
    writer.add_token_types([3, *[1] * 11])
    writer.add_token_merges(["a b", "ab c", "Ġ a"])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id, writer.add_pad_token_id):
        add(0)
    writer.add_chat_template("{{ messages }}")
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = tmp_path / "model"
    folder.mkdir()
    convert_gguf(tmp_path / "x.gguf", folder)
    loaded = load_model(folder)
    assert loaded.codec.encode("abc 12") == [5, 6, 7, 8]
    assert loaded.codec.decode([5, 0, 9, 7]) == "abc a1"
    state = loaded.model.state_dict()
    back = state["model.layers.0.self_attn.q_proj.weight"].reshape(heads, 2, dim // 2, hidden).transpose(1, 2)
    torch.testing.assert_close(back.reshape(heads * dim, hidden), tensors["blk.0.attn_q.weight"], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        state["model.layers.0.mlp.down_proj.weight"], tensors["blk.0.ffn_down.weight"], rtol=1e-3, atol=1e-3
    )


@pytest.mark.model
@pytest.mark.skipif(not present("smollm2-135m"), reason="rolltree models get smollm2-135m")
def test_the_real_small_model_speaks_english_and_agrees_with_transformers():
    loaded = load_model("smollm2-135m")
    prompt = np.array(loaded.codec.encode("The capital of France is"))

    async def scenario():
        engine = LocalEngine(loaded, max_batch=4)
        sample = await engine.submit(Request(prompt, Sampling(max_tokens=24, temperature=0.0)))
        scored = await engine.score(np.concatenate([prompt, sample.actions]), 1)
        await engine.close()
        return sample, scored

    sample, scored = asyncio.run(scenario())
    assert loaded.codec.decode(sample.actions).startswith(" Paris")
    ids = torch.from_numpy(np.concatenate([prompt, sample.actions]))[None]
    with torch.no_grad():
        out = loaded.model.generate(ids[:, : len(prompt)], max_new_tokens=24, do_sample=False)
        table = torch.log_softmax(loaded.model(ids).logits[0], -1)
    assert out[0, len(prompt) :].tolist() == sample.actions.tolist()
    truth = table[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
    np.testing.assert_allclose(scored.logp, truth, rtol=1e-4, atol=1e-4)
