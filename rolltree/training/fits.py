"""Whether a run fits its device's memory, estimated before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rolltree.objective.batch import Objective
from rolltree.policy.device import HALF, Placement, free_memory, place
from rolltree.policy.language import most_logits
from rolltree.policy.lora import whole_model
from rolltree.policy.models import model_folder
from rolltree.policy.size import ModelSize, gigabytes, size_in
from rolltree.recipe.recipe import Parts
from rolltree.training.config import LoraKnobs, TrainConfig, TrainError
from rolltree.training.readings import VALUES

SPARE = 0.95
"""Share of the free memory that may be planned with."""


def check_fits(
    model: str | Path, parts: Parts, config: TrainConfig, *, engine: bool, moving: bool = False
) -> None:  # fmt: skip
    """Refuse a run that needs more memory than is free, naming the knob that helps; `engine` = one runs beside it,
    `moving` = its reference is replaced on the way."""
    folder = model_folder(str(model))
    size = size_in(whole_model(folder))
    if size is None:
        return
    where = place(config.device, config.dtype)
    free = free_memory(where.device)
    need = needs(size, parts, config, where, engine=engine, moving=moving)
    total = sum(need.values())
    if total <= SPARE * free:
        return
    told = ", ".join(f"{name} {gigabytes(count)}" for name, count in need.items() if count > 0.01 * total)
    cards = where.device.type != "cpu"
    way = f"choose a smaller model, or {'a card for each of several ranks (ranks)' if cards else 'free memory'}"
    for knobs, other in _ways(config):
        less = sum(needs(size, parts, other, where, engine=engine, moving=moving).values())
        if less <= SPARE * free:
            way = f"with {knobs} it needs about {gigabytes(less)}"
            break
    raise TrainError(
        f"training {model} needs about {gigabytes(total)} on {where.device} ({told}) and {gigabytes(free)} are free; "
        f"{way}"
    )


def needs(
    size: ModelSize, parts: Parts, config: TrainConfig, where: Placement, *, engine: bool = True, moving: bool = False
) -> dict[str, float]:
    """Bytes at the height of a step on the first rank, by what they are for."""
    half, lora, ranks = where.dtype in HALF, config.lora, config.ranks
    narrow = where.dtype.itemsize
    trained = size.parameters if lora is None else size.adapters(lora.rank, lora.targets)
    frozen = 0 if lora is None else size.parameters
    # The driver's whole copy and the parts of all: on a processor all ranks share the memory, with a card each the
    # first holds what the driver holds too.
    share = 1.0 if where.device.type == "cpu" else 1 / ranks
    copies = 1.0 if ranks == 1 else 1 + share
    # Pieces find weights whole and leave the gradient whole (see `rolltree.training.ranks.shard`).
    outside = 2 * size.vocab * size.hidden
    whole = 2 * size.parameters if config.piece else 2 * outside + 3 * (size.parameters - outside) / size.layers
    block = 0.0 if ranks == 1 else 4 * max(0.0, whole) * (ranks if where.device.type == "cpu" else 1)
    # What is computed again needs the weights of its block alone in the finer type's place.
    narrowed = trained / size.layers if ranks > 1 and config.gradient_checkpointing else trained
    frozen_width = narrow if ranks == 1 else 4
    credit, objective = parts.credit.needs, parts.objective
    fixed = _fixed(size, objective, where, adapted=lora is not None and not moving)
    if "action:reference" in credit and lora is None:
        fixed += size.parameters * narrow
    return {
        "weights": copies * (4 * trained + frozen_width * frozen),
        "weights in bfloat16": narrow * narrowed if half else 0,
        "blocks and embeddings that stand whole": block,
        "gradients": 4 * trained * share,
        "AdamW": 8 * trained * share,
        "fixed policies": fixed,
        "critic": 16 * size.parameters if credit & VALUES else 0,
        "activations": _activations(size, config, where),
        "engine": engine * narrow * (size.parameters + 2 * min(size.context, 8192) * size.kv),
    }


def _fixed(size: ModelSize, objective: Objective, where: Placement, *, adapted: bool) -> float:
    out = 0.0
    if "reference" in objective.needs and not adapted:
        out += size.parameters * where.dtype.itemsize
    if objective.needs & {"previous", "ewma"}:
        out += 4 * size.parameters
    return out


def _activations(size: ModelSize, config: TrainConfig, where: Placement) -> float:
    """Of a full micro-batch: what a layer keeps of a token for the backward pass, and the logits beside it."""
    narrow = where.dtype.itemsize
    tokens = min(config.piece, config.token_budget) if config.piece else config.token_budget
    # Two norms in float32; their outputs, queries, keys and values before and after; gate, up and two products of them.
    kept = 8 * size.hidden + narrow * (3 * size.hidden + 4 * size.inner + 3 * size.queries) + 2 * narrow * (
        size.kv // size.layers
    )  # fmt: skip
    layers = kept + 4 * size.hidden * size.layers if config.gradient_checkpointing else kept * size.layers
    logits = 4 * 4 * min(tokens * size.vocab, most_logits(where.device))
    # In pieces, keys and values of the whole row stay, and what is sent back to them.
    row = config.token_budget * size.kv * (narrow + 4) if config.piece else 0
    return tokens * layers + logits + row


def _ways(config: TrainConfig) -> list[tuple[str, TrainConfig]]:
    """Knobs that take less memory, the ones that change least first."""
    out: list[tuple[str, TrainConfig]] = []
    lean = config
    if not lean.gradient_checkpointing:
        lean = replace(lean, gradient_checkpointing=True)
        out.append(("--gradient-checkpointing", lean))
    small = min(lean.token_budget, 1024)
    if small < lean.token_budget:
        lean = replace(lean, token_budget=small)
        out.append((f"{_said(config, lean)}--token-budget {small}", lean))
    if config.lora is None:
        out.append(("--lora 16", replace(config, lora=LoraKnobs(16, 32.0))))
        lean = replace(lean, lora=LoraKnobs(16, 32.0))
        out.append((f"--lora 16 {_said(config, lean)}--token-budget {lean.token_budget}", lean))
    return out


def _said(config: TrainConfig, lean: TrainConfig) -> str:
    return "--gradient-checkpointing " if lean.gradient_checkpointing > config.gradient_checkpointing else ""


__all__ = ["check_fits", "needs"]
