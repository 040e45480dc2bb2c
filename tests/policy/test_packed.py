"""One packed row says of every action what the flat batch says, and sends the same gradient back."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPTJConfig,
    GPTNeoXConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    StableLmConfig,
)

from rolltree.errors import ModelError
from rolltree.policy import attention, blocks
from rolltree.policy.language import Attention, LanguagePolicy
from rolltree.policy.packed import PackError, pack
from rolltree.tree import Tree
from rolltree.tree.table import table
from tests.policy.forests import VOCAB, path_logp, random_tree, tiny_llama

IDS: Any = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
SHAPE: Any = IDS | {
    "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}  # fmt: skip
MODELS = {kv: tiny_llama(kv_heads=kv) for kv in (1, 2, 4)}


def grads(model: torch.nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), trees=st.integers(1, 4), kv=st.sampled_from([1, 2, 4]),
       pieces=st.sampled_from([2, 3, 256]), overhead=st.sampled_from([0, 10_000]), keep=st.booleans(),
       copied=st.sampled_from([0.0, 1.0, 100.0]))  # fmt: skip
def test_packed_equals_paths(
    seed: int, trees: int, kv: int, pieces: int, overhead: int, keep: bool, copied: float
) -> None:
    rng = random.Random(seed)
    view = table([random_tree(rng, f"t{i}") for i in range(trees)])
    targets = view.loss_mask & (np.random.default_rng(seed).random(view.actions) < 0.8)
    if not targets.any():
        return
    model = MODELS[kv]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LONGEST", pieces)
        patch.setattr(blocks, "OVERHEAD", overhead)
        patch.setattr(blocks, "COPY", copied)
        patch.setattr(attention, "KEEP", attention.KEEP if keep else 0)
        packed = pack(view, targets)
        read = LanguagePolicy(model, attention="blocks").read(packed, entropy=True)
        weight = torch.from_numpy(np.random.default_rng(seed + 1).normal(size=len(packed.action)))
        mine = grads(model, (read.logp * weight).sum())
    assert read.entropy is not None
    expected = torch.zeros(view.actions, dtype=torch.float64)
    seen = np.zeros(view.actions, bool)
    for leaf in range(len(view.leaf)):
        logp, flat = path_logp(model, view, leaf)
        new = torch.from_numpy(flat[~seen[flat]])
        expected = expected.index_copy(0, new, logp[~seen[flat]])
        seen[flat] = True
    flat_logp = expected[torch.from_numpy(packed.action)]
    assert torch.allclose(read.logp, flat_logp, atol=1e-12, rtol=0)
    for a, b in zip(mine, grads(model, (flat_logp * weight).sum()), strict=True):
        assert torch.allclose(a, b, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("other", ["dense", "flex"])
def test_other_attentions_agree(other: Attention) -> None:
    rng = random.Random(3)
    view = table([random_tree(rng, f"t{i}", nodes=12) for i in range(3)])
    packed = pack(view, view.loss_mask)
    with torch.no_grad():
        ours = LanguagePolicy(tiny_llama(), attention="blocks").read(packed, entropy=True)
        theirs = LanguagePolicy(tiny_llama(), attention=other).read(packed, entropy=True)
    assert ours.entropy is not None
    assert theirs.entropy is not None
    assert torch.allclose(ours.logp, theirs.logp, atol=1e-12)
    assert torch.allclose(ours.entropy, theirs.entropy, atol=1e-12)


def test_what_teaches_nothing_is_not_computed() -> None:
    tree = Tree("t", list(range(10)))
    a = tree.extend(0, [1, 2, 3, 4])
    tree.extend(0, [5] * 50, role="policy", keep=np.zeros(50, bool))
    tree.extend(a, [7] * 30, role="env")
    tree.extend(a, [1])
    view = table([tree])
    packed = pack(view, view.loss_mask)
    assert len(packed) == 10 + 4
    assert packed.position.tolist() == list(range(14))
    assert packed.target.tolist() == [1, 2, 3, 4, 1]


def test_forks_share_the_predicting_position() -> None:
    tree = Tree("t", [3, 4, 5])
    for token in (7, 8, 9):
        tree.extend(0, [token])
    view = table([tree])
    packed = pack(view, view.loss_mask)
    assert len(packed) == 3
    assert packed.reads.tolist() == [2]
    assert packed.read.tolist() == [0, 0, 0]


def test_entropy_carries_a_gradient_and_watching_does_not() -> None:
    model = tiny_llama()
    view = table([random_tree(random.Random(1), "t")])
    policy = LanguagePolicy(model)
    read = policy.read(pack(view, view.loss_mask), entropy=True, watch=True)
    assert read.entropy is not None
    assert read.watched is not None
    assert read.entropy.requires_grad
    assert not read.watched.requires_grad
    assert torch.allclose(read.entropy, read.watched)


def test_large_vocabularies_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama()
    rng = random.Random(8)
    view = table([random_tree(rng, f"t{i}") for i in range(3)])
    packed = pack(view, view.loss_mask)
    policy = LanguagePolicy(model)
    whole = policy.read(packed, entropy=True, watch=True)
    assert whole.entropy is not None
    first = grads(model, (whole.logp - whole.entropy).square().sum())
    monkeypatch.setattr("rolltree.policy.language.LOGITS", 3 * 23)
    parts = policy.read(packed, entropy=True, watch=True)
    assert parts.entropy is not None
    assert torch.allclose(whole.logp, parts.logp, atol=1e-12)
    for a, b in zip(first, grads(model, (parts.logp - parts.entropy).square().sum()), strict=True):
        assert torch.allclose(a, b, atol=1e-10)


def test_the_module_still_generates() -> None:
    model = tiny_llama(exact=False)
    tokens = torch.tensor([[1, 2, 3, 4]])
    before = model(tokens).logits
    LanguagePolicy(model)
    assert torch.allclose(before, model(tokens).logits, atol=1e-6)
    assert model.generate(tokens, max_new_tokens=3, do_sample=False, pad_token_id=0).shape == (1, 7)


def test_an_empty_prompt_is_named() -> None:
    tree = Tree("lost", [])
    tree.extend(0, [1, 2])
    view = table([tree])
    with pytest.raises(PackError, match="node 1 in tree 'lost'"):
        pack(view, view.loss_mask)


def test_a_path_longer_than_the_context_is_refused() -> None:
    tree = Tree("t", [1] * 100)
    tree.extend(0, [2] * 40)
    view = table([tree])
    with pytest.raises(ModelError, match="139 tokens does not fit the model's context of 128"):
        LanguagePolicy(tiny_llama()).read(pack(view, view.loss_mask))


def test_models_with_other_attention_are_refused() -> None:
    model = tiny_llama()
    model.config.layer_types = ["sliding_attention", "full_attention"]
    with pytest.raises(ModelError, match="sliding_attention"):
        LanguagePolicy(model)


OTHERS = {
    "gptneox": GPTNeoXConfig(**SHAPE, num_attention_heads=4),
    "mixtral": MixtralConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=2, num_local_experts=2),
    "gptj": GPTJConfig(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=4, n_positions=64, rotary_dim=4, **IDS),
    "stablelm": StableLmConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=2),
    "bloom": BloomConfig(vocab_size=VOCAB, hidden_size=16, n_layer=2, n_head=4, **IDS),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_read_exactly_or_refused(name: str) -> None:
    model = _model_of(OTHERS[name]).train()
    if name in ("gptneox", "mixtral"):
        LanguagePolicy(model)
        assert model.training
        return
    _refused_or_exact(model)


def _refused_or_exact(model: Any) -> None:
    """What is accepted reads two branches as the model reads either path, causally, and tells them apart."""
    refused = ""
    try:
        policy = LanguagePolicy(model)
    except ModelError as error:
        refused = str(error)
    if refused:
        assert re.match(r"cannot train a \w+ model: its forward does not attend along a tree", refused)
        return
    tree, paths = Tree("t", [1, 2, 3]), ([1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8, 9])
    tree.extend(0, [4, 5, 6])
    tree.extend(0, [7, 8, 9])
    view = table([tree])
    with torch.no_grad():
        own = policy.read(pack(view, view.loss_mask)).logp
        plain = [model.eval()(input_ids=torch.tensor([path])).logits[0].log_softmax(-1) for path in paths]
    read = torch.cat([p[[2, 3, 4], path[3:]] for p, path in zip(plain, paths, strict=True)])
    torch.testing.assert_close(own, read, atol=1e-5, rtol=0)
    torch.testing.assert_close(plain[0][:3], plain[1][:3], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("std", "dtype"), [(0.02, "float32"), (0.0, "float32"), (0.3, "bfloat16")])
def test_weights_that_hide_a_wrong_reading_do_not_pass_for_a_right_one(std: float, dtype: str) -> None:
    model = _model_of(OTHERS["gptj"], std).to(getattr(torch, dtype))
    _refused_or_exact(model)


@pytest.mark.parametrize(("std", "dtype"), [(0.02, "float32"), (0.3, "bfloat16")])
def test_a_right_reading_passes_with_small_weights_and_short_numbers(std: float, dtype: str) -> None:
    LanguagePolicy(_model_of(OTHERS["gptneox"], std).to(getattr(torch, dtype)))


@pytest.mark.parametrize("kind", ["window", "longrope"])
def test_paths_are_no_longer_than_is_read_exactly(kind: str) -> None:
    if kind == "window":
        config: Any = MistralConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=2, sliding_window=8)
    else:
        rope = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [4.0, 4.0], "short_factor": [1.0, 1.0]}
        rope["original_max_position_embeddings"] = 8
        config = Phi3Config(
            **SHAPE, num_attention_heads=4, num_key_value_heads=4, sliding_window=None, rope_parameters=rope,
            original_max_position_embeddings=8,
        )  # fmt: skip
    model = _model_of(config)
    policy = LanguagePolicy(model)
    tree = Tree("t", [1, 2])
    tree.extend(0, [3, 4, 5, 6, 7, 8])
    view = table([tree])
    with torch.no_grad():
        plain = model(input_ids=torch.arange(1, 9)[None]).logits[0].log_softmax(-1)
        own = policy.read(pack(view, view.loss_mask)).logp
    torch.testing.assert_close(own, plain[torch.arange(1, 7), torch.arange(3, 9)], atol=1e-5, rtol=0)
    tree.extend(1, [9, 10])
    view = table([tree])
    with pytest.raises(ModelError, match="does not fit the model's context of 8"):
        policy.read(pack(view, view.loss_mask))


def _model_of(config: Any, std: float = 0.3) -> Any:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model
