"""The base policy's corpus: the seven tasks played by their own experts, with mistakes.

A corpus of perfect play gives a nearly deterministic policy, on which group-relative training has nothing to compare.
Here each task's expert errs at a rate of its own, and levels around the default are mixed in, so that samples differ
where the policy errs and easier and harder items are known too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from rolltree.engine.protocol import Codec
from rolltree.task.items import TaskError
from rolltree.task.nano import NanoTask, Transcript, play
from rolltree.task.registry import load_task

NOISE: Mapping[str, float] = {
    "arithmetic": 0.3, "countdown": 0.4, "lookup": 0.25, "sql": 0.7, "grid": 0.35, "records": 0.15, "calculator": 0.25,
}  # fmt: skip
"""Task -> rate of mistakes in its demonstrations."""
PHASES: tuple[tuple[float, float], ...] = ((0.8, 0.1), (0.2, 1.0))
"""(share of the corpus, factor on the noise), in the order of training: skills are learned from nearly clean play,
which needs far fewer examples; the habit of erring comes last."""
SHARE: Mapping[str, float] = {
    "arithmetic": 4, "countdown": 3, "lookup": 2, "sql": 0.6, "grid": 1.5, "records": 1.5, "calculator": 1.5,
}  # fmt: skip
"""Task -> relative number of demonstrations; tasks that need sums in the head need the most."""
LEVELS: Mapping[int, float] = {1: 0.3, 2: 0.5, 3: 0.12, 4: 0.08}
"""Level -> share of a task's demonstrations."""


@dataclass(frozen=True, slots=True)
class Document:
    """A played rollout in tokens; `own` marks those the policy is to write (its turns, and the end)."""

    tokens: NDArray[np.int32]
    own: NDArray[np.bool_]


def document(transcript: Transcript, codec: Codec) -> Document:
    """Tokens of prompt, turns and end-of-text. The policy learns its own turns, not the environment's."""
    prompt = codec.encode(transcript.item.prompt)
    tokens, own = list(prompt), [False] * len(prompt)
    for who, text in transcript.turns:
        ids = codec.encode(text)
        tokens += ids
        own += [who == "policy"] * len(ids)
    return Document(np.asarray([*tokens, codec.eos_id], dtype=np.int32), np.asarray([*own, True], dtype=np.bool_))


async def demonstrations(name: str, count: int, seed: int, factor: float = 1.0) -> list[Transcript]:
    """Noisy play of one task over training items of all levels, its rate of mistakes times `factor`."""
    rng = Random(f"corpus/{name}/{seed}")
    played: list[Transcript] = []
    tasks = {level: nano_task(name, level) for level in LEVELS}
    items = {level: task.items("train", seed) for level, task in tasks.items()}
    for level in rng.choices(list(LEVELS), list(LEVELS.values()), k=count):
        played.append(await play(tasks[level], next(items[level]), rng, NOISE[name] * factor))
    return played


def nano_task(name: str, level: int) -> NanoTask:
    """A task of the nano suite."""
    task = load_task(name, level=level)
    if not isinstance(task, NanoTask):
        raise TaskError(
            f"{name} has no expert to demonstrate it: the corpus is made of the nano tasks {', '.join(NOISE)}"
        )
    return task


async def corpus(codec: Codec, count: int, seed: int = 0) -> list[Document]:
    """About `count` documents of all tasks in their shares, phase after phase, shuffled within each."""
    total = sum(SHARE.values())
    documents: list[Document] = []
    for number, (part, factor) in enumerate(PHASES):
        phase: list[Document] = []
        for name, share in SHARE.items():
            wanted = round(count * part * share / total)
            played = await demonstrations(name, wanted, seed * len(PHASES) + number, factor)
            phase += [document(transcript, codec) for transcript in played]
        Random(f"{seed}/{number}").shuffle(phase)
        documents += phase
    return documents
