"""Devices and number types by name, and policies that compute in half precision or keep fewer activations."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig

from rolltree.errors import ModelError
from rolltree.policy import device as device_module
from rolltree.policy.device import Compute, Placement, natural, place
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.packed import Packed, pack
from rolltree.policy.size import check_sampled, size_of
from rolltree.tree.table import table
from tests.policy.forests import random_tree, tiny_llama
from tests.policy.test_llama_train import FAMILIES

NEOX: dict[str, Any] = {
    "vocab_size": 23, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0, "initializer_range": 0.3,
}  # fmt: skip
no_gpu = pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")


def packed_trees(seed: int = 1) -> Packed:
    rng = random.Random(seed)
    view = table([random_tree(rng, f"t{i}", least=6) for i in range(4)])
    return pack(view, view.loss_mask)


@no_gpu
def test_without_a_gpu_auto_is_the_processor_and_cuda_is_one_sentence() -> None:
    assert place() == Placement(torch.device("cpu"), torch.float32)
    for name in ("cuda", "cuda:3"):
        with pytest.raises(ModelError, match=f"--device {name}: torch .* finds no cuda device on this machine"):
            place(name)


def test_words_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ModelError, match="there is no device 'gpu': choose auto, cpu, cuda or cuda:N"):
        place("gpu")
    with pytest.raises(ModelError, match="there is no dtype 'bfloat': did you mean 'bfloat16'"):
        place("cpu", "bfloat")
    with pytest.raises(ModelError, match="there is no dtype 'int4': choose auto, float32 or bfloat16"):
        place("cpu", "int4")


def test_a_card_that_is_there_is_taken_and_a_missing_one_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    acc = torch.accelerator
    monkeypatch.setattr(acc, "is_available", lambda: True)
    monkeypatch.setattr(acc, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(acc, "current_device_index", lambda: 1)
    monkeypatch.setattr(acc, "device_count", lambda: 2)
    monkeypatch.setattr(device_module.torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    assert place() == Placement(torch.device("cuda:1"), torch.bfloat16)
    assert place("cuda:0", "float32") == Placement(torch.device("cuda:0"), torch.float32)
    assert place("cpu").dtype == torch.float32
    with pytest.raises(ModelError, match=r"--device cuda:2: this machine has 2 \(the last is cuda:1\)"):
        place("cuda:2")
    monkeypatch.setattr(device_module.torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    assert natural(torch.device("cuda:0")) == torch.float32


@pytest.mark.parametrize("family", [*FAMILIES, "gpt_neox"])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_half_precision_is_near_and_its_sums_are_float32(family: str, weights: torch.dtype) -> None:
    torch.manual_seed(0)
    config = GPTNeoXConfig(**NEOX)
    model: Any = AutoModelForCausalLM.from_config(config).eval() if family == "gpt_neox" else FAMILIES[family].eval()
    for p in model.parameters():
        p.data = 0.3 * torch.randn_like(p) if p.ndim > 1 else p.data
    packed = packed_trees()
    told: list[tuple[torch.Tensor, torch.Tensor]] = []
    for compute in (Compute(), Compute(torch.bfloat16)):
        other = AutoModelForCausalLM.from_config(model.config).eval()
        other.load_state_dict(model.state_dict())
        if compute.dtype is not None:
            other.to(weights)
        policy = LanguagePolicy(other, attention="blocks", compute=compute)
        read = policy.read(packed, entropy=True, watch=True)
        assert read.entropy is not None
        assert {read.logp.dtype, read.entropy.dtype} == {torch.float32}
        (read.logp.mean() + read.entropy.mean()).backward()
        grads = [p.grad for p in other.parameters() if p.grad is not None]
        if compute.dtype is None or weights == torch.float32:
            assert {g.dtype for g in grads} == {torch.float32}, "gradients are summed in float32"
        told.append((read.logp.detach(), torch.cat([g.float().flatten() for g in grads])))
    (logp, grad), (low, coarse) = told
    assert 0 < (logp - low).abs().max() < 0.15
    assert torch.cosine_similarity(grad, coarse, dim=0) > 0.99


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt_neox"])
def test_checkpointing_changes_memory_and_nothing_else(kind: str) -> None:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(GPTNeoXConfig(**NEOX)) if kind == "gpt_neox" else FAMILIES[kind]
    model.eval()
    packed = packed_trees()
    held: list[int] = []
    told: list[list[torch.Tensor]] = []
    for checkpointing in (False, True):
        model.zero_grad()
        policy = LanguagePolicy(model, attention="blocks", compute=Compute(checkpointing=checkpointing))
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: s.append(x.numel()) or x, lambda x: x):
            logp = policy.read(packed).logp
        held.append(sum(sizes))
        logp.square().sum().backward()
        told.append([logp.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for a, b in zip(*told, strict=True):
        assert torch.allclose(a, b, atol=1e-5 * float(a.abs().max().clamp(min=1)))
    assert held[1] < held[0] / 2


def test_checkpointing_never_brings_dropout_back() -> None:
    packed = packed_trees()
    told: list[torch.Tensor] = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(GPTNeoXConfig(**NEOX, hidden_dropout=0.5)).eval()
        told.append(LanguagePolicy(model, compute=Compute(checkpointing=checkpointing)).read(packed).logp.detach())
    assert torch.allclose(*told, atol=1e-6)


def test_sizes_are_read_off_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama(exact=False)
    size = size_of(model.config)
    assert size.parameters == sum(p.numel() for p in model.parameters())
    from rolltree.policy.lora import with_lora

    wrapped = with_lora(model, rank=3, alpha=1.0, targets=("q_proj", "down_proj"))
    assert size.adapters(3, ("q_proj", "down_proj")) == sum(p.numel() for p in wrapped.parameters() if p.requires_grad)
    check_sampled(size, "tiny", torch.device("cpu"), torch.float32)
    monkeypatch.setattr("rolltree.policy.size.free_memory", lambda _: 1000)
    with pytest.raises(ModelError, match=r"big needs about .* GB on cpu to be sampled .* and 1e-06 GB are free"):
        check_sampled(size, "big", torch.device("cpu"), torch.float32)


def test_far_positions_are_where_they_were_in_half_precision() -> None:
    """Rotary frequencies rounded to bfloat16 would turn position 1,000 by whole radians."""
    from rolltree.policy.device import narrowed

    def model() -> Any:
        torch.manual_seed(0)
        wide = {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 2048, "rotary_pct": 1.0}
        return AutoModelForCausalLM.from_config(GPTNeoXConfig(**{**NEOX, **wide})).eval()

    def told(each: Any) -> torch.Tensor:
        with torch.no_grad():
            ids = torch.arange(1100)[None] % 23
            return each(input_ids=ids).logits[0, -50:].float().log_softmax(-1)

    whole, low, rounded = told(model()), told(narrowed(model(), torch.bfloat16)), told(model().bfloat16())
    assert (whole - low).abs().mean() < 0.5 * (whole - rounded).abs().mean()
