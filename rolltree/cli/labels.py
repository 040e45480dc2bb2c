"""`rolltree labels`: step labels of stored rollouts as rows for trainers, or a step head fitted on them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rolltree.analysis.step_rows import RowRules
from rolltree.cli.common import emit, first_name, parse
from rolltree.errors import RolltreeError
from rolltree.tree import Tree
from rolltree.tree.store.atomic import check_writable

if TYPE_CHECKING:
    from rolltree.analysis.source import RunSource
    from rolltree.analysis.step_head import FittedHead

ABOUT = """Turn the step values of stored rollouts into rows that TRL's trainers read, or fit a step head on them.

  rolltree solve step_labels --items 64 --items-from train --out runs/labels
  rolltree labels runs/labels --kind prm --out prm.jsonl    steps with labels
  rolltree labels runs/labels --kind dpo --out pairs.parquet  siblings of a fork
  rolltree labels runs/labels --kind sft --out steps.jsonl  steps worth keeping
  rolltree labels runs/labels --kind head --out head.npz  a small PRM:
  rolltree solve mcts --worth head:head.npz --rollouts 0

A step's value is how often a rollout from its end was right: noted by step_labels, else the share of right leaves below
it, so that every tree that forked can be read.
"""


@dataclass(frozen=True)
class LabelsArguments:
    """What to read and what to write."""

    run: Path | None = None
    """A run folder, a folder of answers, a folder of saved forests, or a file of nodes."""
    kind: Literal["prm", "dpo", "sft", "head"] = "prm"
    """Rows for a process reward model, for preference pairs, for supervised steps; or a head fitted here."""
    out: Path | None = None
    """File to write: .jsonl or .parquet; .npz for a head."""
    rules: RowRules = field(default_factory=RowRules)
    ridge: float = 1.0
    """Of the head's fit."""
    model: str = ""
    """Model whose tokenizer wrote the rollouts; the run's own when left out."""
    overwrite: bool = False
    """Replace an existing file."""
    json: bool = False
    """Print one JSON document and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Parse, read, write."""
    name, rest = first_name(arguments)
    asked = parse(LabelsArguments, ["--run", name, *rest] if name else rest, "labels", ABOUT)
    if asked.run is None:
        raise RolltreeError("which rollouts? rolltree labels RUN --out FILE; give a run folder or a file of nodes")
    if asked.out is None:
        raise RolltreeError(f"where to? give --out {'head.npz' if asked.kind == 'head' else 'rows.jsonl'}")
    if asked.out.exists() and not asked.overwrite:
        raise RolltreeError(f"{asked.out} exists and is kept as it is; give another --out, or --overwrite")
    check_writable(asked.out)
    from rolltree.analysis.source import open_source  # loads Arrow, which --help needs none of

    source = open_source(asked.run, asked.model)
    model = asked.model or str(source.config.get("model", ""))
    if not model:
        raise RolltreeError(f"{asked.run} does not say which model wrote it; give --model")
    if not asked.model:
        model = source.names.model(model, "--model")
    with nullcontext() if asked.model else source.names.reading():
        return _read(asked, asked.out, source, model)


def _read(asked: LabelsArguments, out: Path, source: RunSource, model: str) -> int:
    from rolltree.analysis.step_rows import ROWS, from_failed, write_rows
    from rolltree.policy.load import check_writes_tokens, load_codec
    from rolltree.policy.models import model_folder

    check_writes_tokens(model, "rows and step heads are", "give a run of a language model")
    trees = [tree for step in source.steps() for tree in source.archive(step)]
    if not trees:
        raise RolltreeError(f"{asked.run} holds no rollouts; grow some with rolltree solve step_labels --out FOLDER")
    if asked.kind == "head":
        return _head(asked, out, trees, model)
    codec = load_codec(model_folder(model))
    rows = (row for tree in trees for row in ROWS[asked.kind](tree, codec.decode, asked.rules))
    count = write_rows(rows, out, overwrite=asked.overwrite)
    told: dict[str, object] = {"kind": asked.kind, "trees": len(trees), "rows": count, "out": str(out)}
    if asked.kind == "sft":
        kept = [from_failed(tree, asked.rules) for tree in trees]
        told["from_failed"] = sum(failed for _, failed in kept) / max(sum(all_ for all_, _ in kept), 1)
    return _said(told, as_json=asked.json)


def _head(asked: LabelsArguments, out: Path, trees: Sequence[Tree], model: str) -> int:
    from rolltree.analysis.step_head import fit_head
    from rolltree.engine.local import LocalEngine
    from rolltree.generate.judge.head import save_head
    from rolltree.policy.load import load_model

    if out.suffix != ".npz":
        raise RolltreeError(f"{out} does not end in .npz, as a head's file does; give another --out")

    async def fit() -> FittedHead:
        engine = LocalEngine(load_model(model))
        try:
            return await fit_head(engine, trees, ridge=asked.ridge, model=model)
        finally:
            await engine.close()

    found = asyncio.run(fit())
    out.parent.mkdir(parents=True, exist_ok=True)
    save_head(found.head, out)
    told = {"kind": "head", "trees": len(trees), "steps": found.steps, "held_out_steps": found.held_out,
            "held_out_auc": found.auc, "out": str(out)}  # fmt: skip
    return _said(told, as_json=asked.json)


def _said(told: Mapping[str, object], *, as_json: bool) -> int:
    if as_json:
        emit(told)
    else:
        print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in told.items()))
    return 0
