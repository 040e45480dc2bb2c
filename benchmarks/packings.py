"""The same trees trained in four packings, and how far the fastest can be from a flat batch at all.

    python benchmarks/packings.py [--repeats 7] [--threads 1] [--clock wall|cpu] [--json FILE]

flat             every path written out and padded to the longest, transformers' own forward
rolltree         one packed row, attention along the tree
TreeRow          TRL's packing (installed with the extra trl, from TRL 1.16 on). Its attention is FlashAttention 3,
                 for cards alone; here torch's runs over the same gathered keys, segment by segment
prefix-grouper   `pip install prefix-grouper`: left out where it is not installed. Its attention function is torch's

All four compute the log-probs of every sampled token and their gradient with the same weights; how far each gradient is
from the flat one is told. All are run in turn in every repeat, so a busy machine slows all of them.

`operations` are those that the result needs: matrix products forward and twice that backward, of the rows that a way
reads, and of the pairs of tokens that see each other. `share` is their rate over that of a large matrix product, which
the same repeats measure. Operations of flat over those of a way are the ratio that is reached at equal shares.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from machine import clock, save
from training import model
from transformers import AttentionInterface, AttentionMaskInterface

from rolltree.policy.language import LanguagePolicy
from rolltree.policy.packed import pack
from rolltree.training.memory import keep_freed
from rolltree.tree import Tree
from rolltree.tree.table import table

SHAPES = ((1, 256, 8, 64), (1, 512, 16, 32), (16, 20, 8, 40))
"""Trees, prompt, leaves, longest leaf."""
HELD = "held-attention"


@dataclass(frozen=True)
class Row:
    """One way with one shape of trees; ratios are seconds of flat over its own."""

    way: str
    trees: int
    prompt: int
    leaves: int
    longest: int
    ragged: bool
    threads: int
    rows: int
    operations: float
    peak: float
    share: float
    ratio_min: float
    ratio_median: float
    ratio_max: float
    ratio_at_equal_shares: float
    ratio_at_the_peak: float
    gradient_error: float


@dataclass(frozen=True)
class Way:
    """One way to compute the gradient."""

    model: Any
    work: Callable[[], torch.Tensor]
    """The mean log-prob of the trained tokens, with a graph."""
    rows: int
    last: int
    """Rows of the last layer's feed-forward and of its output projection."""
    reads: int
    pairs: float

    def operations(self) -> float:
        """Of a forward and a backward pass."""
        layer = self.model.model.layers[0]
        qkv = sum(getattr(layer.self_attn, n).weight.numel() for n in ("q_proj", "k_proj", "v_proj"))
        rest = sum(p.numel() for p in layer.parameters() if p.ndim == 2) - qkv
        layers, config = len(self.model.model.layers), self.model.config
        inside = (layers - 1) * (qkv + rest) * self.rows + qkv * self.rows + rest * self.last
        head = self.model.lm_head.weight.numel() * self.reads
        return 3 * (2 * (inside + head) + 4 * self.pairs * config.hidden_size * layers)


def forest_of(shape: tuple[int, int, int, int], ragged: bool) -> list[Tree]:
    trees, prompt, leaves, longest = shape
    rng = np.random.default_rng(0)
    forest = [Tree(f"t{i}", rng.integers(3, 99, prompt)) for i in range(trees)]
    for tree in forest:
        for _ in range(leaves):
            tree.extend(0, rng.integers(3, 99, rng.integers(longest // 4, longest + 1) if ragged else longest))
    return forest


def flat(forest: list[Tree], prompt: int) -> Way:
    net: Any = model()
    paths = [tree.prefix(leaf) for tree in forest for leaf in tree.leaves()]
    width = max(map(len, paths))
    ids = torch.tensor(np.stack([np.pad(r, (0, width - len(r))) for r in paths]))
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in paths])
    real = mask[:, prompt:].bool()

    def work() -> torch.Tensor:
        logits = net(input_ids=ids, attention_mask=mask, logits_to_keep=width - prompt + 1, use_cache=False).logits
        return logits[:, :-1].log_softmax(-1).gather(-1, ids[:, prompt:, None])[..., 0][real].mean()

    tokens = ids.numel()
    return Way(net, work, tokens, tokens, len(paths) * (width - prompt + 1), len(paths) * width * (width + 1) / 2)


def rolltree(forest: list[Tree]) -> Way:
    net = model()
    policy, view = LanguagePolicy(net), table(forest)
    row = pack(view, view.loss_mask)
    last = row.spans.last()

    def work() -> torch.Tensor:
        return policy.read(pack(view, view.loss_mask)).logp.mean()

    pairs = float((last - np.arange(len(last))).sum())
    return Way(net, work, len(row), len(row.reads), len(row.reads), pairs)


def tree_row(forest: list[Tree]) -> Way:
    """TRL's trie in one row; what TRL gives its kernel goes to torch's attention instead."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.async_grpo.packing import TreeRow

    net: Any = model()
    packing = TreeRow()
    for tree in forest:
        for leaf in tree.leaves():
            ids = torch.from_numpy(np.asarray(tree.prefix(leaf)).astype(np.int64))
            mask = torch.from_numpy(np.concatenate(
                [np.full(len(n.actions), n.role == "policy", np.int64) for n in tree.path(leaf)]
            ))  # fmt: skip
            packing.add({"input_ids": ids, "completion_mask": mask, "advantage": 1.0,
                         "old_log_probs": torch.zeros(len(ids)), "group_id": tree.id})  # fmt: skip
    row = packing.pack()
    queries, keys = row["tree_cu_seqlens_q"].tolist(), row["tree_cu_seqlens_k"].tolist()
    runs = list(zip(queries, queries[1:], keys, keys[1:], strict=False))
    seen = [torch.ones(b - a, d - c, dtype=torch.bool).tril(d - c - b + a) for a, b, c, d in runs]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        k, v = k.index_select(2, row["tree_kv_index"]), v.index_select(2, row["tree_kv_index"])
        parts = [
            F.scaled_dot_product_attention(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], attn_mask=mask, scale=scale)
            for (a, b, c, d), mask in zip(runs, seen, strict=True)
        ]
        return torch.cat(parts, 2).transpose(1, 2)

    at, target = row["token_index"], row["shift_labels"][row["token_index"]]

    def work() -> torch.Tensor:
        hidden = _trunk(net, row["input_ids"][None], row["position_ids"][None], attend)[0]
        return net.lm_head(hidden[at]).log_softmax(-1).gather(-1, target[:, None]).mean()

    rows = len(row["input_ids"])
    return Way(net, work, rows, rows, len(at), float(sum(m.sum() for m in seen)))


def prefix_grouper(forest: list[Tree], prompt: int) -> Way:
    """Its best practice: grouped input, one call per attention, the prompt's last output before each completion."""
    from prefix_grouper import PrefixGrouper  # pyright: ignore[reportMissingImports]

    net: Any = model()
    prompts = torch.tensor(np.stack([tree.root.actions for tree in forest]).astype(np.int64))
    told = [np.asarray(tree.prefix(leaf))[prompt:] for tree in forest for leaf in tree.leaves()]
    width, group = max(map(len, told)), len(told) // len(forest)
    ids = torch.tensor(np.stack([np.pad(r, (0, width - len(r))) for r in told]).astype(np.int64))
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in told])
    grouper: Any = PrefixGrouper.from_ungrouped_masks(torch.ones_like(prompts), mask, group)
    whole = grouper.concat_input(prompts, torch.ones_like(prompts), ids, mask)
    position = torch.zeros_like(whole)
    for i, tree in enumerate(forest):
        mine = [np.arange(len(r)) + prompt for r in told[i * group : (i + 1) * group]]
        line = torch.from_numpy(np.concatenate([np.arange(len(tree.root.actions)), *mine]))
        position[i, : len(line)] = line
    masks: dict[tuple[int, int], torch.Tensor] = {}

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, padding: torch.Tensor, scale: float) -> Any:
        shape = q.shape[2], k.shape[2]
        if shape not in masks:
            causal = torch.ones(shape, dtype=torch.bool).tril(shape[1] - shape[0])
            masks[shape] = causal & padding[:, None, None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=masks[shape], scale=scale)
        return out.transpose(1, 2)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        return grouper.forward(attention, q, k, v, scale)

    def work() -> torch.Tensor:
        hidden = _trunk(net, whole, position, attend)
        _, _, states, real = grouper.split_output(hidden, include_prefix_last=1)
        logp = net.lm_head(states[:, :-1]).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
        return logp[real[:, 1:]].mean()

    pairs = len(forest) * prompt * (prompt + 1) / 2 + len(told) * (width * prompt + width * (width + 1) / 2)
    return Way(net, work, whole.numel(), whole.numel(), ids.numel(), pairs)


def _trunk(net: Any, ids: torch.Tensor, position: torch.Tensor, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
    """transformers' own layers with another attention."""
    net.set_attn_implementation(HELD)
    # A mask of four dimensions is passed through untouched.
    mask = torch.zeros(1, 1, 1, 1)
    return net.model(
        input_ids=ids, position_ids=position, attention_mask=mask, use_cache=False, held=attend
    ).last_hidden_state


def _held(module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, **rest: Any) -> tuple[Any, None]:
    return rest["held"](q, k, v, float(rest.get("scaling") or q.shape[-1] ** -0.5)), None


AttentionInterface.register(HELD, _held)
AttentionMaskInterface.register(HELD, lambda **_: None)


def ways_of(shape: tuple[int, int, int, int], ragged: bool) -> dict[str, Way]:
    """All that can run here."""
    forest, prompt = forest_of(shape, ragged), shape[1]
    out = {"flat": flat(forest, prompt), "rolltree": rolltree(forest)}
    if importlib.util.find_spec("trl") is not None:
        out["TreeRow"] = tree_row(forest)
    if importlib.util.find_spec("prefix_grouper") is not None:
        out["prefix-grouper"] = prefix_grouper(forest, prompt)
    return out


def gradient(way: Way) -> torch.Tensor:
    way.model.zero_grad()
    way.work().backward()
    return torch.cat([p.grad.flatten() for p in way.model.parameters()])


def compared(shape: tuple[int, int, int, int], ragged: bool, repeats: int) -> list[Row]:
    """All ways, in turn in every repeat, beginning with another one each time."""
    ways = ways_of(shape, ragged)
    true = gradient(ways["flat"])
    errors = {name: float((gradient(way) - true).norm() / true.norm()) for name, way in ways.items()}
    big = torch.randn(1024, 1024)
    seconds: dict[str, list[float]] = {name: [] for name in (*ways, "peak")}
    names = list(seconds)
    for i in range(repeats):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            begin = clock()
            _ = [big @ big for _ in range(8)] if name == "peak" else gradient(ways[name])
            seconds[name].append(clock() - begin)
    peak = 16 * 1024**3 / min(seconds["peak"])
    rows: list[Row] = []
    theirs = statistics.median(seconds["flat"])
    for name, way in ways.items():
        ratios = [a / b for a, b in zip(seconds["flat"], seconds[name], strict=True)]
        needed = way.operations()
        rows.append(Row(
            name, *shape, ragged, torch.get_num_threads(), way.rows, needed, peak,
            needed / statistics.median(seconds[name]) / peak, min(ratios), statistics.median(ratios), max(ratios),
            ways["flat"].operations() / needed, theirs * peak / needed, errors[name],
        ))  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine that others use")
    parser.add_argument("--only", type=int, help="the first so many shapes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clock.kind = options.clock
    torch.set_num_threads(options.threads)
    keep_freed()
    done: list[Row] = []
    head = f"{'way':16}{'shape':>22}{'rows':>7}{'Gop':>7}{'share':>7}"
    print(head + "  ratio min med max   equal shares  at the peak  error")
    for shape in SHAPES[: options.only]:
        for ragged in (False, True):
            for row in compared(shape, ragged, options.repeats):
                done.append(row)
                what = f"{shape[0]}, {shape[1]}, {shape[2]} × {shape[3]}{' ragged' if ragged else ''}"
                print(
                    f"{row.way:16}{what:>22}{row.rows:7}{row.operations / 1e9:7.1f}{row.share:7.0%}  "
                    f"{row.ratio_min:.2f} {row.ratio_median:.2f} {row.ratio_max:.2f}   "
                    f"{row.ratio_at_equal_shares:12.2f}  {row.ratio_at_the_peak:11.2f}  {row.gradient_error:.0e}",
                    flush=True,
                )  # fmt: skip
    save(options.json, done)


if __name__ == "__main__":
    main()
