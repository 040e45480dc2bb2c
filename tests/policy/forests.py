"""Random forests and small models for tests of packing and training."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.tree import Tree
from rolltree.tree.table import Table

VOCAB = 23


class ExactNorm(nn.Module):
    """RMS norm in the number type of its input (transformers' own goes through float32)."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def tiny_llama(*, exact: bool = True, kv_heads: int = 2, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=kv_heads, max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    if not exact:
        return model
    model = model.double()
    inner: Any = model.model
    for layer in inner.layers:
        layer.input_layernorm = ExactNorm(layer.input_layernorm.weight.data)
        layer.post_attention_layernorm = ExactNorm(layer.post_attention_layernorm.weight.data)
    inner.norm = ExactNorm(inner.norm.weight.data)
    return model


def random_tree(rng: random.Random, name: str, *, nodes: int = 10, least: int = 1, rewards: bool = True) -> Tree:
    """Forks, empty nodes, environment turns, hints, masks: whatever a strategy may leave behind."""
    tree = Tree(name, [rng.randrange(VOCAB) for _ in range(rng.randint(1, 6))])
    for _ in range(rng.randint(least, nodes)):
        above = rng.choice(list(tree.nodes))
        length = rng.randint(0, 5)
        role: Any = rng.choice(["policy", "policy", "policy", "env", "hint"])
        actions = np.array([rng.randrange(VOCAB) for _ in range(length)], np.int32)
        keep = np.array([rng.random() < 0.8 for _ in range(length)]) if rng.random() < 0.3 else None
        tree.extend(above, actions, role=role, keep=keep, logp=-np.ones(length, np.float32))
    if rewards:
        for leaf in tree.leaves():
            leaf.status = "done" if rng.random() < 0.9 else "failed"
            if leaf.status == "done":
                leaf.scores["reward"] = rng.choice([0.0, 0.5, 1.0])
    return tree


def path_logp(model: LlamaForCausalLM, table: Table, leaf: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Log-probs of every action of one path but the first, through the model's own causal forward, and where they are
    in the table's flat actions."""
    rows: list[int] = []
    row = int(table.leaf[leaf])
    while row >= 0:
        rows.insert(0, row)
        row = int(table.parent[row])
    flat = np.concatenate([table.start[r] + np.arange(table.length[r]) for r in rows])
    tokens = torch.from_numpy(np.concatenate([table.nodes[r].actions for r in rows]).astype(np.int64))
    logits = model(input_ids=tokens[None], use_cache=False).logits[0]
    return logits.log_softmax(-1)[:-1].gather(1, tokens[1:, None])[:, 0], flat[1:]
