"""One packed row says of every action what the flat batch says, and sends the same gradient back."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.policy import attention
from rolltree.policy.decoder import ModelError
from rolltree.policy.language import Attention, LanguagePolicy
from rolltree.policy.packed import PackError, pack
from rolltree.tree import Tree
from rolltree.tree.table import table
from tests.policy.forests import path_logp, random_tree, tiny_llama

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
    targets = view.teaches & (np.random.default_rng(seed).random(view.actions) < 0.8)
    if not targets.any():
        return
    model = MODELS[kv]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "LONGEST", pieces)
        patch.setattr(attention, "OVERHEAD", overhead)
        patch.setattr(attention, "COPY", copied)
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
def test_other_attentions_agree(other: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    if other == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        monkeypatch.setattr("rolltree.policy.language._compiled", flex_attention)
    rng = random.Random(3)
    view = table([random_tree(rng, f"t{i}", nodes=12) for i in range(3)])
    packed = pack(view, view.teaches)
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
    packed = pack(view, view.teaches)
    assert len(packed) == 10 + 4
    assert packed.position.tolist() == list(range(14))
    assert packed.target.tolist() == [1, 2, 3, 4, 1]


def test_forks_share_the_predicting_position() -> None:
    tree = Tree("t", [3, 4, 5])
    for token in (7, 8, 9):
        tree.extend(0, [token])
    view = table([tree])
    packed = pack(view, view.teaches)
    assert len(packed) == 3
    assert packed.reads.tolist() == [2]
    assert packed.read.tolist() == [0, 0, 0]


def test_entropy_carries_a_gradient_and_watching_does_not() -> None:
    model = tiny_llama()
    view = table([random_tree(random.Random(1), "t")])
    policy = LanguagePolicy(model)
    read = policy.read(pack(view, view.teaches), entropy=True, watch=True)
    assert read.entropy is not None
    assert read.watched is not None
    assert read.entropy.requires_grad
    assert not read.watched.requires_grad
    assert torch.allclose(read.entropy, read.watched)


def test_large_vocabularies_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama()
    rng = random.Random(8)
    view = table([random_tree(rng, f"t{i}") for i in range(3)])
    packed = pack(view, view.teaches)
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
        pack(view, view.teaches)


def test_a_path_longer_than_the_context_is_refused() -> None:
    tree = Tree("t", [1] * 100)
    tree.extend(0, [2] * 40)
    view = table([tree])
    with pytest.raises(ModelError, match="139 tokens does not fit the model's context of 128"):
        LanguagePolicy(tiny_llama()).read(pack(view, view.teaches))


def test_models_with_other_attention_are_refused() -> None:
    model = tiny_llama()
    model.config.layer_types = ["sliding_attention", "full_attention"]
    with pytest.raises(ModelError, match="sliding_attention"):
        LanguagePolicy(model)
