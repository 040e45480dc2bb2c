"""Policies that regimes start from: `python -m studies.warm tails`, kept in `studies/policies`.

The embedded policy imitates noisy play of the regime's task, some demonstrations at a time, until its held-out pass@1
lies in the band that the regime asks for. A policy above the band is refused: it began too well or learned too fast.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
import tyro
from torch.nn.functional import cross_entropy

from rolltree.compare.trace import LabError
from rolltree.engine.local import LocalEngine
from rolltree.errors import unknown
from rolltree.policy.load import LoadedModel, load_model, no_progress_bar
from rolltree.task.nano.expert import NanoTask, play
from rolltree.task.registry import load_task
from studies.command import run_study
from studies.lab.nano.corpus import Document, document
from studies.lab.nano.measure import measure
from studies.lab.nano.train import IGNORED, PretrainSettings, batches, optimizers


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What is imitated, and until when."""

    task: str
    level: int
    noise: float
    """Rate of mistakes in the play."""
    low: float
    high: float
    """The band of pass@1."""
    clean: float = 0.0
    """pass@1 that play without mistakes must reach first: the skill is learned before the habit of erring."""
    muon: float = 0.0
    """Rate of Muon for the matrices inside the layers; 0 = AdamW for all. What must be found in the context is learned
    by Muon in minutes, and by AdamW not at all."""


STARTS: Mapping[str, WarmStart] = {
    "tails": WarmStart("studies/effort.py:Effort?asked=both", 1, 0.06, 0.40, 0.70),
    "lookup": WarmStart("lookup", 1, 0.6, 0.40, 0.70, clean=0.9, muon=0.006),
    "planned": WarmStart("planned:grid", 3, 0.15, 0.12, 0.30),
    "spoken": WarmStart("spoken:grid", 3, 0.15, 0.12, 0.30),
}


@dataclass(frozen=True)
class WarmSettings:
    """Which policy is made."""

    name: tyro.conf.Positional[str]
    """tails, lookup, planned or spoken."""
    chunk: int = 1024
    """Demonstrations between two measurements."""
    most: int = 40_000
    """Demonstrations after which it is given up."""
    batch: int = 32
    """Demonstrations of an update."""
    lr: float = 1e-3
    """Learning rate of the imitation."""
    items: int = 64
    """Held-out items of a measurement, with 4 samples each."""
    seed: int = 0
    """Where chance starts: the same seed gives the same result."""
    out: Path = Path("studies/policies")
    """Folder that the policy's own is made in."""
    threads: int = 1
    """Threads of processor work."""


def main(settings: WarmSettings) -> Path:
    """Imitate, measure, and write the folder of a model with a note of how it was made."""
    if settings.name not in STARTS:
        raise unknown("warm start", settings.name, STARTS)
    start, folder = STARTS[settings.name], settings.out / settings.name
    if (folder / "model.safetensors").exists():
        raise LabError(f"{folder} already holds a policy; remove it to make it again")
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    loaded, began = load_model("nano"), time.process_time()
    task = load_task(start.task, level=start.level)
    assert isinstance(task, NanoTask)
    model, rng = loaded.model, Random(f"warm/{settings.name}/{settings.seed}")
    chosen = _optimizers(model, start, settings)
    items, seen, rate = task.items("train", settings.seed), 0, _rate(loaded, task, settings)
    for noise, wanted in ((0.0, partial(_above, start.clean)), (start.noise, partial(_within, start))):
        while not wanted(rate):
            if seen >= settings.most:
                raise LabError(
                    f"{settings.name}: pass@1 is {rate:.3f} after {seen} demonstrations; give more with --most"
                )
            played = [asyncio.run(play(task, item, rng, noise)) for item in islice(items, settings.chunk)]
            _imitate(model, [document(one, loaded.codec) for one in played], chosen, settings)
            seen, rate = seen + settings.chunk, _rate(loaded, task, settings)
            print(f"{settings.name}: {seen} demonstrations, pass@1 {100 * rate:.1f} %", flush=True)
    if not start.low <= rate <= start.high:
        raise LabError(
            f"{settings.name}: pass@1 is {rate:.3f}, beyond {start.low} to {start.high}; give a smaller --chunk or --lr"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with no_progress_bar():
        model.save_pretrained(folder)
        loaded.codec.tokenizer.save_pretrained(folder)
    note = {**asdict(start), "demonstrations": seen, "pass@1": rate, "seed": settings.seed, "lr": settings.lr,
            "batch": settings.batch, "chunk": settings.chunk,
            "processor_seconds": round(time.process_time() - began)}  # fmt: skip
    (folder / "made.json").write_text(json.dumps(note, indent=2) + "\n")
    return folder


def _above(least: float, rate: float) -> bool:
    return rate >= least


def _within(start: WarmStart, rate: float) -> bool:
    """Whether the band is reached: from below, or from above where clean play came first."""
    return rate <= start.high if start.clean else rate >= start.low


def _rate(loaded: LoadedModel, task: NanoTask, settings: WarmSettings) -> float:
    async def rated() -> float:
        engine = LocalEngine(loaded)
        try:
            return (await measure(engine, task, items=settings.items, samples=4, k=4)).pass_1
        finally:
            await engine.close()

    return asyncio.run(rated())


def _optimizers(model: Any, start: WarmStart, settings: WarmSettings) -> Sequence[torch.optim.Optimizer]:
    if start.muon:
        return optimizers(model, PretrainSettings(out=Path(), rate=start.muon, rate_rest=settings.lr))
    return [torch.optim.AdamW(model.parameters(), lr=settings.lr, betas=(0.9, 0.98), weight_decay=0.0)]


def _imitate(
    model: Any, documents: Sequence[Document], chosen: Sequence[torch.optim.Optimizer], settings: WarmSettings
) -> None:
    model.train()
    knobs = PretrainSettings(out=Path(), batch=settings.batch)
    for slices in batches(documents, knobs):
        counted = sum(int((labels[:, 1:] != IGNORED).sum()) for _, labels in slices)
        for tokens, labels in slices:
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
            loss = cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")
            (loss / counted).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one in chosen:
            one.step()
            one.zero_grad()
    model.eval()


if __name__ == "__main__":
    raise SystemExit(run_study("warm", WarmSettings, main, __doc__))
