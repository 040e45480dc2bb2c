"""Make the reader: `python -m studies.reader.train --out runs/policies/reader`.

A Llama of a few layers learns the reader's documents (`language.py`) from random weights, on what it is to write alone,
with two notes first, and one more whenever it reads those. It is measured every so often on notes it has not seen, and
written with a note of how it was made. Go or no-go: at least 90 % of single notes read among eight, and verdicts right
at .8; the note says which.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import tyro
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.compare.trace import LabError
from studies.lab.nano.corpus import Document
from studies.lab.nano.tokenizer import CharacterCodec, build_tokenizer
from studies.lab.nano.train import IGNORED, PretrainSettings, batches, optimizers
from studies.reader.language import NOTES, document, drawn, spoiled

READS, JUDGES = 0.9, 0.8
"""What is asked of it: notes read among eight, verdicts that are right."""


@dataclass(frozen=True)
class ReaderSettings:
    """How the reader is made."""

    out: Path = Path("runs/policies/reader")
    documents: int = 90_000
    batch: int = 64
    layers: int = 3
    width: int = 128
    rate: float = 0.02
    rate_rest: float = 3e-3
    look: int = 25
    """Steps after which it is asked whether it reads as many notes as it is shown; then it is shown one more."""
    minutes: float = 20.0
    """Processor minutes after which training ends with what it has."""
    every: int = 250
    """Steps between two measurements."""
    count: int = 1000
    """Questions of the last measurement."""
    seed: int = 0
    threads: int = 1


def build(settings: ReaderSettings) -> LlamaForCausalLM:
    """Tied embeddings, four heads."""
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=99, hidden_size=settings.width, intermediate_size=int(settings.width * 2.75),
        num_hidden_layers=settings.layers, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256,
        tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=1,
    ))  # fmt: skip


def main(settings: ReaderSettings) -> None:
    """Train, measure on the way, write."""
    if (settings.out / "model.safetensors").exists():
        raise LabError(f"{settings.out} already holds a policy; remove it to make it again")
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    tokenizer = build_tokenizer(256)
    codec, rng, model = CharacterCodec(tokenizer), Random(f"reader/{settings.seed}"), build(settings)
    chosen = optimizers(model, PretrainSettings(settings.out, rate=settings.rate, rate_rest=settings.rate_rest))
    rates = [group["lr"] for one in chosen for group in one.param_groups]
    steps, began, found = settings.documents // settings.batch, time.process_time(), dict[str, float]()
    most, reads_all = 2, False
    for step in range(steps):
        late = (time.process_time() - began) / 60 / settings.minutes
        done = max(step / steps, late)
        if done >= 1:
            break
        if step % settings.look == settings.look - 1 and not reads_all and reads(model, codec, most) >= READS:
            reads_all, most = most == NOTES, min(most + 1, NOTES)
        reading = 0.2 if reads_all else 0.8
        texts = [document(rng, most, reading) for _ in range(settings.batch)]
        learn(model, chosen, [_document(codec, *text) for text in texts])
        scale = min(1.0, (step + 1) / 50) * (1 - done)
        for group, rate in zip((g for one in chosen for g in one.param_groups), rates, strict=True):
            group["lr"] = max(rate * scale, 1e-6)
        if step % settings.every == settings.every - 1:
            found = measured(model, codec, 200)
            spent = time.process_time() - began
            print(f"step {step + 1}/{steps}  {spent:.0f} s  {most} notes  " +
                  "  ".join(f"{k} {v:.3f}" for k, v in found.items()), flush=True)  # fmt: skip
    found = measured(model, codec, settings.count)
    settings.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(settings.out)
    tokenizer.save_pretrained(settings.out)
    go = found["reads"] >= READS and found["judges"] >= JUDGES
    note = {k: v for k, v in asdict(settings).items() if k != "out"} | found | {
        "go": go, "parameters": sum(w.numel() for w in model.parameters()),
        "processor_seconds": round(time.process_time() - began),
    }  # fmt: skip
    (settings.out / "made.json").write_text(json.dumps(note, indent=2) + "\n")
    print(json.dumps(note), "go" if go else "no-go", flush=True)


def learn(model: Any, chosen: Sequence[torch.optim.Optimizer], documents: Sequence[Document]) -> None:
    """One step on some documents."""
    (slices,) = batches(documents, PretrainSettings(Path(), batch=len(documents)))
    counted = sum(int((labels[:, 1:] != IGNORED).sum()) for _, labels in slices)
    for tokens, labels in slices:
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")
        (loss / counted).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for one in chosen:
        one.step()
        one.zero_grad()


def reads(model: Any, codec: CharacterCodec, most: int, count: int = 128) -> float:
    """Share of single notes read right among so many."""
    rng = Random(f"reader/reads/{most}")
    items = [drawn(rng, most, most) for _ in range(count)]
    keys = [rng.choice(notes.values) for notes in items]
    said = _greedy(model, codec, [f"{n.text}@{k}" for n, (k, _) in zip(items, keys, strict=True)], 1)
    return float(np.mean([a == str(v) for a, (_, v) in zip(said, keys, strict=True)]))


def measured(model: Any, codec: CharacterCodec, count: int) -> dict[str, float]:
    """On eight notes: single notes read right, right verdicts (half of the attempts are wrong), right mends and
    answers, and the share of its greedy answers with a 7 read that have the bug."""
    rng = Random("reader/measure")
    items = [drawn(rng, NOTES, NOTES) for _ in range(count)]
    wrong = [spoiled(notes, rng) for notes in items]
    shown = [notes.right if i % 2 else wrong[i] for i, notes in enumerate(items)]
    heads = [notes.text + notes.question for notes in items]
    verdicts = _greedy(model, codec, [f"{h}{s}!" for h, s in zip(heads, shown, strict=True)], 8)
    mended = _greedy(model, codec, [f"{h}{w}~" for h, w in zip(heads, wrong, strict=True)], 7)
    said = _greedy(model, codec, heads, 7)
    seven = [i for i, n in enumerate(items) if 7 in (n.value(n.asked[0]), n.value(n.asked[1]))]
    plain = [i for i in range(count) if i not in seven]
    right = [a == n.right for a, n in zip(said, items, strict=True)]
    return {
        "reads": reads(model, codec, NOTES, count),
        "judges": float(np.mean([a[-1:] == "ny"[i % 2] for i, a in enumerate(verdicts)])),
        "mends": float(np.mean([a == n.right for a, n in zip(mended, items, strict=True)])),
        "answers": float(np.mean([right[i] for i in plain])),
        "bugged": float(np.mean([not right[i] for i in seven])) if seven else 0.0,
    }


def _greedy(model: Any, codec: CharacterCodec, prompts: Sequence[str], length: int) -> list[str]:
    """The most likely continuations; prompts of one length are read together."""
    out = [""] * len(prompts)
    sizes = sorted({len(prompt) for prompt in prompts})
    with torch.no_grad():
        for size in sizes:
            rows = [i for i, prompt in enumerate(prompts) if len(prompt) == size]
            ids = torch.tensor([codec.encode(prompts[i]) for i in rows])
            for _ in range(length):
                ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
            for row, i in enumerate(rows):
                out[i] = codec.decode(ids[row, size:].tolist())
    return out


def _document(codec: CharacterCodec, asked: str, said: str) -> Document:
    """The tokens; in what is read off only the values are learned, since the keys are free."""
    ids = np.asarray(codec.encode(asked + said), np.int32)
    own = np.arange(len(ids)) >= len(asked)
    if asked.endswith("@"):
        own &= (np.arange(len(ids)) - len(asked)) % 2 == 1
    return Document(ids, own)


if __name__ == "__main__":
    main(tyro.cli(ReaderSettings))
