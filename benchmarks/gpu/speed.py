"""Tokens per second: the local engine against `generate`, packed trees against flat sequences without padding."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from typing import Any

import numpy as np
import torch
from numerics import Plain
from work import Bench, Case, Shape

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy import language
from rolltree.policy.device import HALF, Compute
from rolltree.policy.forward import checkpoint_layers
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.packed import pack
from rolltree.tree import Tree
from rolltree.tree.table import table

BUDGET = 16_384
"""Tokens of a flat micro-batch."""


def matrix_peak(bench: Bench) -> float:
    """Operations per second of a large matrix product in the type of the run: what shares are shares of."""
    n = 256 if bench.toy else 8192
    a, b = (torch.randn(n, n, device=bench.device, dtype=bench.dtype) for _ in range(2))
    return 2 * n**3 / bench.time(lambda: a @ b, 5)


def engines(bench: Bench, shape: Shape) -> None:
    sizes = [(4, 2, 12, 6)] if bench.toy else [(8, 8, 256, 128), (4, 16, 2048, 128)]
    model = shape.build(bench.device, bench.dtype)
    for prompts, group, length, new in sizes:
        what = f"{shape.name}, {prompts} prompts of {length}, groups of {group}, {new} new tokens"
        inputs = (bench, model, shape, prompts, group, length, new, what)
        bench.attempt(what, lambda inputs=inputs: _engine(*inputs), least=30)


def _engine(bench: Bench, model: Any, shape: Shape, prompts: int, group: int, length: int, new: int, what: str) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(1, shape.vocab, length) for _ in range(prompts)]
    memory = 2 * prompts * group * (length + new)

    async def ours(*, graphs: bool) -> float:
        engine = LocalEngine(
            model, Plain(shape.vocab), device=bench.device, dtype=bench.dtype, max_batch=prompts * group,
            max_tokens_in_memory=memory, cuda_graphs=graphs,
        )  # fmt: skip
        best = 0.0
        for seed in range(2):
            knobs = [Sampling(max_tokens=new, seed=1000 * seed + i, ignore_eos=True) for i in range(group)]
            began = time.perf_counter()
            done = await asyncio.gather(*(engine.submit(Request(p, s)) for p in ids for s in knobs))
            best = max(best, sum(len(d.actions) for d in done) / (time.perf_counter() - began))
        await engine.close()
        return best

    mine = asyncio.run(ours(graphs=True))
    most = bench.peak()
    kernels = asyncio.run(ours(graphs=False)) if bench.device.type == "cuda" else None
    batch = torch.from_numpy(np.repeat(np.stack(ids), group, 0)).to(bench.device)
    knobs: dict[str, Any] = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": True, "pad_token_id": 0}

    def theirs() -> None:
        with torch.no_grad():
            model.generate(batch, attention_mask=torch.ones_like(batch), **knobs)

    theirs_rate = prompts * group * new / bench.time(theirs, 1)
    bench.add("engine", what=what, ours=mine, without_graphs=kernels, generate=theirs_rate,
              ratio=mine / theirs_rate, peak_gb=most)  # fmt: skip


def packed(bench: Bench, shape: Shape, peak: float) -> None:
    """One shape over all cases. Weights of 7B are in the type that is computed in, as under adapters."""
    large = shape.hidden > 2000
    weights = bench.dtype if large else torch.float32
    model = shape.build(bench.device, weights)
    for case in bench.cases:
        what = f"{shape.name}, {case.name}, prompt {case.prompt}"
        bench.attempt(what, lambda c=case, w=what: _packed(bench, model, shape, c, peak, w), least=25)


def _packed(bench: Bench, model: Any, shape: Shape, case: Case, peak: float, what: str) -> None:
    forest = case.grow(shape.vocab)
    view = table(forest)
    row = pack(view, view.loss_mask)
    compute = Compute(bench.dtype if bench.dtype in HALF else None, checkpointing=not bench.toy)
    trained = len(row.action)
    policy = LanguagePolicy(model, compute=compute)

    def ours() -> None:
        model.zero_grad(set_to_none=True)
        policy.read(row).logp.mean().backward()

    bench.clear()
    mine = bench.time(ours, 2)
    mine_peak = bench.peak()
    core: Any = model
    # Its layers' activations are computed again too, by transformers.
    core.set_attn_implementation("sdpa")
    if compute.checkpointing:
        checkpoint_layers(core)
    parts = _flat(forest, bench.device)

    def flat() -> None:
        model.zero_grad(set_to_none=True)
        for ids, at in parts:
            with compute.context(bench.device):
                hidden = core.model(input_ids=ids, use_cache=False).last_hidden_state
                read, target = _targets(ids, at)
                states = hidden.flatten(0, 1).index_select(0, read)
                every = torch.arange(len(read), device=ids.device)
                told = language._in_chunks(core.lm_head, states, every, target, entropy=False, watch=False)  # pyright: ignore
            (told.logp.sum() / trained).backward()

    bench.clear()
    try:
        theirs = bench.time(flat, 1)
        theirs_peak = bench.peak()
        trl = _trl(bench, model, forest, compute) if bench.device.type != "cpu" else None
    finally:
        if compute.checkpointing:
            core.gradient_checkpointing_disable()
        core.eval()
    share = _operations(shape, core, row) / mine / peak
    bench.add(
        "packed", what=what, unique=len(row), flat=sum(ids.numel() for ids, _ in parts), trained=trained,
        ours=trained / mine, theirs=trained / theirs, ratio=theirs / mine, peak_gb=mine_peak,
        flat_peak_gb=theirs_peak, share=share, trl=trl,
    )  # fmt: skip


def _flat(forest: list[Tree], device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Every path written out, in micro-batches of paths of one length: nothing is padded. And what is trained of it."""
    paths: dict[int, list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]] = {}
    for tree in forest:
        for leaf in tree.leaves():
            nodes = tree.path(leaf)
            mask = np.concatenate([np.full(len(n.actions), n.role == "policy") for n in nodes])
            paths.setdefault(len(mask), []).append((np.asarray(tree.prefix(leaf)), mask))
    out: list[tuple[torch.Tensor, torch.Tensor]] = []
    for length, rows in paths.items():
        count = max(1, BUDGET // length)
        for at in range(0, len(rows), count):
            ids, masks = (np.stack(x) for x in zip(*rows[at : at + count], strict=True))
            out.append((torch.from_numpy(ids.astype(np.int64)).to(device), torch.from_numpy(masks).to(device)))
    return out


def _targets(ids: torch.Tensor, trained: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat rows that predict a trained token, and the tokens."""
    at = trained[:, 1:].nonzero()
    return at[:, 0] * ids.shape[1] + at[:, 1], ids[at[:, 0], at[:, 1] + 1]


def _operations(shape: Shape, core: Any, row: Any) -> float:
    """Of a forward and a backward pass over the unique tokens, without what is computed again (arXiv 2204.02311, B)."""
    inside = sum(p.numel() for n, p in core.model.named_parameters() if p.ndim > 1 and "embed" not in n)
    head = shape.vocab * shape.hidden * len(row.reads)
    last = row.spans.last()
    pairs = float((last - np.arange(len(last))).sum())
    return 3 * (2 * inside * len(row) + 2 * head + 4 * pairs * shape.hidden * shape.layers)


def _trl(bench: Bench, model: Any, forest: list[Tree], compute: Compute) -> float | None:
    """Trained tokens per second of TRL's packing of the same trees, where its kernels are at hand."""
    if importlib.util.find_spec("trl") is None or importlib.util.find_spec("kernels") is None:
        return None
    from trl.experimental.async_grpo.packing import TREE_ATTENTION, TreeRow, register_tree_attention

    register_tree_attention()
    row = TreeRow()
    for tree in forest:
        for leaf in tree.leaves():
            ids = torch.from_numpy(np.asarray(tree.prefix(leaf)).astype(np.int64))
            mask = np.concatenate([np.full(len(n.actions), n.role == "policy") for n in tree.path(leaf)])
            row.add({"input_ids": ids, "completion_mask": torch.from_numpy(mask.astype(np.int64)), "advantage": 1.0,
                     "old_log_probs": torch.zeros(len(ids)), "group_id": tree.id})  # fmt: skip
    told = {name: value.to(bench.device) for name, value in row.pack().items()}
    longest = told["tree_max_seqlens"].tolist()
    core: Any = model
    core.set_attn_implementation(TREE_ATTENTION)
    read = told["token_index"].unique()
    target = told["shift_labels"][read]

    def theirs() -> None:
        model.zero_grad(set_to_none=True)
        with compute.context(bench.device):
            hidden = core.model(
                input_ids=told["input_ids"][None], position_ids=told["position_ids"][None], use_cache=False,
                tree_kv_index=told["tree_kv_index"], tree_cu_seqlens_q=told["tree_cu_seqlens_q"],
                tree_cu_seqlens_k=told["tree_cu_seqlens_k"], tree_max_seqlen_q=longest[0], tree_max_seqlen_k=longest[1],
            ).last_hidden_state[0]  # fmt: skip
            every = torch.arange(len(read), device=read.device)
            logp = language._in_chunks(core.lm_head, hidden[read], every, target, entropy=False, watch=False).logp  # pyright: ignore
        logp.mean().backward()

    try:
        return len(read) / bench.time(theirs, 2)
    except Exception as error:  # its kernels come from a hub that may not be reached
        bench.left_out.append(f"TRL's TreeRow: {type(error).__name__}: {str(error)[:200]}")
        return None
