"""A row in pieces says and teaches what the row at once does."""

from __future__ import annotations

import random
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, GPTNeoXConfig

from rolltree.errors import ModelError
from rolltree.policy.device import Compute
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.load import load_model
from rolltree.policy.lora import with_lora
from rolltree.policy.packed import Packed, pack
from rolltree.policy.pieces import cut
from rolltree.tree.table import Table, table
from tests.policy.forests import random_tree
from tests.policy.test_llama_train import FAMILIES


def forest(seed: int, trees: int = 3) -> Table:
    rng = random.Random(seed)
    return table([random_tree(rng, f"t{i}", nodes=12, least=4) for i in range(trees)])


def told(model: torch.nn.Module, packed: Packed, compute: Compute) -> list[torch.Tensor]:
    """Log-probs, entropies, and all gradients of a loss of both."""
    model.zero_grad()
    policy = LanguagePolicy(model, attention="blocks", compute=compute)  # pyright: ignore[reportArgumentType]
    read = policy.read(packed, entropy=True)
    assert read.entropy is not None
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=len(read.logp))).float()
    (read.logp * weight + read.entropy.square()).sum().backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters() if p.requires_grad]
    return [read.logp.detach(), read.entropy.detach(), *grads]


def same(mine: list[torch.Tensor], theirs: list[torch.Tensor], near: float = 1e-5) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert float((a - b).abs().max()) <= near * float(b.abs().max().clamp(min=1))


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), piece=st.sampled_from([1, 2, 7, 19]), checkpointing=st.booleans())
def test_pieces_equal_the_whole(family: str, seed: int, piece: int, checkpointing: bool) -> None:
    # In double precision: other tests leave these models with large weights, and single precision rounds to 3e-5 then.
    model = deepcopy(FAMILIES[family]).eval().double()
    view = forest(seed)
    packed = pack(view, view.loss_mask)
    same(told(model, packed, Compute(piece=piece, checkpointing=checkpointing)), told(model, packed, Compute()))


def test_the_nano_policy_in_pieces_with_adapters() -> None:
    """In double precision, where nothing but a mistake makes a difference."""
    model = with_lora(load_model("nano").model.double(), rank=2, alpha=4.0, targets=("q_proj", "v_proj", "down_proj"))
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.1 * torch.randn_like(parameter)
    model = model.double()
    view = forest(3)
    packed = pack(view, view.loss_mask)
    same(told(model, packed, Compute(piece=11)), told(model, packed, Compute()), near=1e-9)
    with torch.no_grad():
        policy = LanguagePolicy(model, compute=Compute(piece=11))
        assert torch.allclose(policy.states(packed), LanguagePolicy(model).states(packed), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 30))
def test_a_piece_sees_exactly_what_the_row_shows_it(seed: int, size: int) -> None:
    view = forest(seed, trees=2)
    packed = pack(view, view.loss_mask)
    last, rows = packed.spans.last(), np.arange(len(packed))
    for piece in cut(packed, size):
        shown = np.concatenate([piece.above, rows[piece.start : piece.stop]])
        own, mine = piece.spans.last(), np.arange(len(shown))
        queries = rows[piece.start : piece.stop, None]
        whole = (rows <= queries) & (queries < last)
        inside = len(piece.above) + np.arange(piece.stop - piece.start)[:, None]
        assert np.array_equal((mine <= inside) & (inside < own), whole[:, shown])
        assert not np.delete(whole, shown, axis=1).any()


def test_what_is_alive_is_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations that wait for the backward pass are those of a piece, however long the row is."""
    model = FAMILIES["llama"].eval()
    view = forest(7, trees=6)
    packed = pack(view, view.loss_mask)
    alive: list[int] = []

    def peak(compute: Compute) -> int:
        sizes = [0]
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(sizes[-1] + x.numel()) or x, lambda x: x):
            told(model, packed, compute)
        return sizes[-1]

    whole = peak(Compute())
    # Saved over the whole backward pass, the pieces together hold about as much, but never two at once.
    from rolltree.policy import pieces

    run = pieces._Work._run  # pyright: ignore[reportPrivateUsage]

    def counted(self, piece, past):  # type: ignore[no-untyped-def]
        sizes = [0]
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(sizes[-1] + x.numel()) or x, lambda x: x):
            out = run(self, piece, past)
        alive.append(sizes[-1])
        return out

    monkeypatch.setattr(pieces._Work, "_run", counted)  # pyright: ignore[reportPrivateUsage]
    told(model, packed, Compute(piece=8))
    assert len(packed) > 80
    assert max(alive) < whole / 3


def test_other_families_are_refused() -> None:
    config = GPTNeoXConfig(
        vocab_size=23, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(ModelError, match="a gpt_neox model cannot be computed in pieces"):
        LanguagePolicy(model, compute=Compute(piece=8))
