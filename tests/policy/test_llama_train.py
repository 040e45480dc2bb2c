"""The fused forward computes what the model's own forward computes, for each family it covers, and nothing else."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rolltree.policy import language
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.llama_train import covers
from rolltree.policy.lora import with_lora
from rolltree.policy.packed import pack
from rolltree.policy.publish import AdaptedWeights, weights_of
from rolltree.tree.table import table
from tests.policy.forests import VOCAB, random_tree, tiny_llama

SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.3,
}  # fmt: skip
FAMILIES: dict[str, PreTrainedModel] = {
    "llama": LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "llama with biases": LlamaForCausalLM(LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True)),
    "qwen2": Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen3": Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=8)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_logp_and_gradient_equal_the_models_own(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = FAMILIES[family].eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        # Norm weights and biases start at one and zero, where a mistake in them would not show.
        if parameter.ndim == 1:
            parameter.data += 0.3 * torch.randn_like(parameter)
    rng = random.Random(1)
    view = table([random_tree(rng, f"t{i}", least=6) for i in range(4)])
    packed = pack(view, view.loss_mask)
    policy = LanguagePolicy(model, attention="blocks")
    assert covers(model)
    told: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr(language, "covers", lambda _: False)
        model.zero_grad()
        logp = policy.read(packed).logp
        logp.square().sum().backward()
        told.append((logp.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(told[0][0], told[1][0], atol=2e-5)
    for a, b in zip(told[0][1], told[1][1], strict=True):
        assert torch.allclose(a, b, atol=1e-5 * float(b.abs().max().clamp(min=1)))


def test_the_hidden_gradients_are_right_to_the_last_digit() -> None:
    from rolltree.policy.llama_train import _Gated, _RmsNorm, _Rotate  # pyright: ignore[reportPrivateUsage]

    torch.manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    angles = torch.randn(5, 3, dtype=torch.float64).repeat(1, 2)
    assert torch.autograd.gradcheck(lambda x, w: _RmsNorm.apply(x, w, 1e-6), (draw(5, 4), draw(4)))
    assert torch.autograd.gradcheck(lambda x: _Rotate.apply(x, angles.cos(), angles.sin()), (draw(5, 2, 6),))
    assert torch.autograd.gradcheck(_Gated.apply, (draw(5, 4), draw(5, 4)))


def test_what_it_does_not_know_goes_through_the_models_own_forward() -> None:
    assert not covers(tiny_llama())  # a norm of somebody's own
    model = tiny_llama(exact=False)
    assert covers(model)
    model.gradient_checkpointing_enable()
    assert not covers(model)


def test_adapters_take_part_and_merge_into_what_is_published() -> None:
    base = tiny_llama(exact=False)
    plain = {name: value.clone() for name, value in base.state_dict().items()}
    wrapped = with_lora(base, rank=2, alpha=4.0, targets=("q_proj", "down_proj"))
    torch.manual_seed(3)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter) * 0.3
    view = table([random_tree(random.Random(2), "t", least=8)])
    packed = pack(view, view.loss_mask)
    policy = LanguagePolicy(wrapped)
    logp = policy.read(packed).logp
    logp.sum().backward()
    assert all((p.grad is not None) == ("lora_" in n) for n, p in wrapped.named_parameters())
    merged = tiny_llama(exact=False)
    merged.load_state_dict(weights_of(policy))
    assert torch.allclose(LanguagePolicy(merged).read(packed).logp, logp, atol=1e-5)
    assert set(weights_of(policy)) == set(plain)
    assert any(not torch.equal(plain[k], v) for k, v in weights_of(policy).items())
    sent = weights_of(policy)
    assert isinstance(sent, AdaptedWeights)
    assert {k.split(".")[-3] for k in sent.adapters} == {"q_proj", "down_proj"}
    arrived = pickle.loads(pickle.dumps(sent))  # as to an engine in another process
    assert type(arrived) is dict
    assert all(torch.equal(arrived[k], v) for k, v in sent.items())
