"""Make the embedded policy: `python -m studies.lab.nano.train`.

A Llama of five layers of width 128 learns the demonstrations of all nano tasks (`corpus.py`) from random weights, on
its own turns alone. Matrices are trained by Muon, whose orthogonalised steps need far fewer examples than Adam's at
this size; embeddings and norms by AdamW; the rate falls linearly to zero. Muon: https://kellerjordan.github.io/posts/muon/
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from studies.lab.nano.corpus import Document, corpus
from studies.lab.nano.tokenizer import CharacterCodec, build_tokenizer

CONTEXT = 512
IGNORED = -100


@dataclass(frozen=True)
class PretrainSettings:
    """How the policy is made."""

    out: Path
    """Folder to write; must not hold a model yet."""
    documents: int = 120_000
    """Demonstrations, each seen once."""
    batch: int = 64
    """Documents a step."""
    slices: int = 2
    """Parts of a batch, cut by length, so that little is padded."""
    rate: float = 0.02
    """Muon's rate at its height."""
    rate_rest: float = 3e-3
    """AdamW's rate for embeddings and norms."""
    warmup: float = 0.02
    """Share of steps in which the rates rise."""
    seed: int = 0
    threads: int = 1


def build_model() -> LlamaForCausalLM:
    """About a million parameters, with tied embeddings."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=99,
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=5,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )


def batches(documents: Sequence[Document], settings: PretrainSettings) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Batches of (tokens, labels), each cut into slices of similar length; labels of others' tokens are ignored."""
    for first in range(0, len(documents) - settings.batch + 1, settings.batch):
        chosen = sorted(documents[first : first + settings.batch], key=lambda one: len(one.tokens))
        size = -(-len(chosen) // settings.slices)
        yield [_pad(chosen[k : k + size]) for k in range(0, len(chosen), size)]


def _pad(documents: Sequence[Document]) -> tuple[Tensor, Tensor]:
    """Right-padded tokens, and labels that count only what the policy is to write."""
    longest = max(len(one.tokens) for one in documents)
    tokens = torch.zeros(len(documents), longest, dtype=torch.long)
    labels = torch.full_like(tokens, IGNORED)
    for row, one in enumerate(documents):
        ids = torch.from_numpy(one.tokens).long()
        tokens[row, : len(ids)] = ids
        labels[row, : len(ids)] = torch.where(torch.from_numpy(one.own), ids, IGNORED)
    return tokens, labels


def optimizers(model: LlamaForCausalLM, settings: PretrainSettings) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices inside the layers, AdamW for the rest."""
    inner = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and ".layers." in name]
    rest = [weight for name, weight in model.named_parameters() if weight.ndim != 2 or ".layers." not in name]
    return (
        torch.optim.Muon(inner, lr=settings.rate, weight_decay=0.0, momentum=0.95),
        torch.optim.AdamW(rest, lr=settings.rate_rest, betas=(0.9, 0.98), weight_decay=0.0),
    )


def train(documents: Sequence[Document], settings: PretrainSettings) -> LlamaForCausalLM:
    """One pass over the documents."""
    torch.manual_seed(settings.seed)
    model = build_model()
    chosen = optimizers(model, settings)
    steps = len(documents) // settings.batch
    rates = [group["lr"] for one in chosen for group in one.param_groups]
    began = time.monotonic()
    for step, slices in enumerate(batches(documents, settings)):
        scale = min(1.0, (step + 1) / max(1, settings.warmup * steps)) * (1 - step / steps)
        for group, rate in zip((group for one in chosen for group in one.param_groups), rates, strict=True):
            group["lr"] = rate * scale
        counted = sum(int((labels[:, 1:] != IGNORED).sum()) for _, labels in slices)
        total = 0.0
        for tokens, labels in slices:
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
            loss = cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")
            (loss / counted).backward()
            total += float(loss.detach()) / counted
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one in chosen:
            one.step()
            one.zero_grad()
        if step % 50 == 0 or step == steps - 1:
            passed = time.monotonic() - began
            print(f"step {step}/{steps}  loss {total:.3f}  {passed:.0f} s", flush=True)
    return model


def main(settings: PretrainSettings) -> None:
    """Play the corpus, train, and write the folder with a note of how it was made."""
    if (settings.out / "model.safetensors").exists():
        raise SystemExit(f"{settings.out} already holds a model: choose another --out or remove it")
    torch.set_num_threads(settings.threads)
    tokenizer = build_tokenizer(CONTEXT)
    began = time.monotonic()
    documents = asyncio.run(corpus(CharacterCodec(tokenizer), settings.documents, settings.seed))
    played = time.monotonic() - began
    model = train(documents, settings)
    settings.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(settings.out)
    tokenizer.save_pretrained(settings.out)
    note = {key: value for key, value in asdict(settings).items() if key != "out"} | {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "tokens": sum(len(one.tokens) for one in documents),
        "corpus_seconds": round(played),
        "training_seconds": round(time.monotonic() - began - played),
        "processor_seconds": round(time.process_time()),
        "torch": torch.__version__,
    }
    (settings.out / "made.json").write_text(json.dumps(note, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(PretrainSettings))
