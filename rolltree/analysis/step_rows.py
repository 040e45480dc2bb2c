"""Rows for trainers from valued steps: what TRL's PRM, DPO and SFT trainers read.

    prm   {"prompt", "completions": [step, …], "labels": [true, …]}      stepwise supervision
    dpo   {"prompt", "chosen", "rejected"}                               siblings of one fork
    sft   {"prompt", "completion"}                                       one kept step with all that stands before it

History is never edited: a step that is left out of `sft` still stands in the prompt of the next one, so no observation
follows an action that is not there (arXiv 2512.10962).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.analysis.compress import blocks, compressed
from rolltree.errors import RolltreeError
from rolltree.tree import Node, Tree
from rolltree.tree.steps import FIRST_ERROR, STEP_VALUE, THOUGHT, solved, steps_of, value_of
from rolltree.tree.store.atomic import new_file, new_path

Decode = Callable[[Sequence[int]], str]
Row = dict[str, Any]


class StepRowsError(RolltreeError):
    """Rows that cannot be made or written; names what is missing and the way out."""


@dataclass(frozen=True, slots=True)
class RowRules:
    """What becomes of values."""

    soft: bool = False
    """Labels as values instead of right and wrong."""
    threshold: float = 0.0
    """Above it a step counts as right (prm) or is kept (sft)."""
    look_back: float = 0.0
    """f of y_i = v_i − f·(y_{i−1} − v_i) from the second step on (MedS³): a step that lost value is told so."""
    merge: bool = False
    """Beside the rows, for every step from the second on, a row that ends there with it and the step before it as one,
    under its label (HRM)."""
    compress: bool = False
    """Beside the rows of a tree those of its compression (HNC): of many siblings one stands beside their parent, with
    both steps as one, and all values are counted anew. Values that were noted are not used there."""
    until_error: bool = True
    """Whether a row ends with its first error, as labels by people do: what follows has no label of its own."""
    margin: float = 0.5
    """Least difference between the values of a pair."""
    all_pairs: bool = False
    """Every pair of a fork that differs so much, instead of its best and its worst."""


def prm_rows(tree: Tree, decode: Decode, rules: RowRules) -> Iterator[Row]:
    """A row for each finished rollout whose steps all have a value; where rollouts were labelled, for these alone."""
    seen: set[tuple[str, ...]] = set()
    for leaf in labelled(tree):
        steps = steps_of(tree, leaf)
        values = [value_of(tree, step) for step in steps]
        known = [v for v in values if v is not None]
        if not steps or len(known) < len(values):
            continue
        prompt, texts = before(tree, steps[0], decode), [decode(step.actions.tolist()) for step in steps]
        yield from _valued(prompt, texts, known, rules, seen)
    if rules.compress and (root := blocks(tree, decode)) is not None:
        prompt = decode(tree.root.actions.tolist())
        for path in compressed(root, Random(f"compress/{tree.id}"))[0].paths():
            yield from _valued(prompt, [block.text for block in path], [block.value for block in path], rules, seen)


def _valued(
    prompt: str, texts: Sequence[str], values: Sequence[float], rules: RowRules, seen: set[tuple[str, ...]]
) -> Iterator[Row]:
    """A row of steps with values, and those that end in two merged ones."""
    numbers, count = looked_back(values, rules.look_back), len(texts)
    if rules.until_error:
        count = next((i + 1 for i, v in enumerate(values) if v <= rules.threshold), count)
    labels = [y if rules.soft else v > rules.threshold for v, y in zip(values, numbers, strict=True)][:count]
    yield {"prompt": prompt, "completions": list(texts[:count]), "labels": labels}
    for end in range(2, count + 1) if rules.merge else ():
        merged = (*texts[: end - 2], texts[end - 2] + texts[end - 1])
        if merged not in seen:  # what rollouts share is merged once
            seen.add(merged)
            yield {"prompt": prompt, "completions": list(merged), "labels": [*labels[: end - 2], labels[end - 1]]}


def dpo_rows(tree: Tree, decode: Decode, rules: RowRules) -> Iterator[Row]:
    """Pairs of siblings whose values differ enough: the same context, one step each."""
    for node in tree.walk():
        ranked = sorted(told_apart(tree, node, decode), key=lambda pair: -pair[0])
        pairs = [(a, b) for i, a in enumerate(ranked) for b in ranked[i + 1 :]]
        if not rules.all_pairs:
            pairs = [(ranked[0], ranked[-1])] if len(ranked) > 1 else []
        for (high, chosen), (low, rejected) in pairs:
            if high - low >= rules.margin:
                prompt = before(tree, node, decode) + decode(node.actions.tolist())
                yield {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def told_apart(tree: Tree, node: Node, decode: Decode) -> list[tuple[float, str]]:
    """The different steps below a node, each with its value: as noted, else the mean over all that wrote the same."""
    noted, rest = dict[str, float](), dict[str, list[float]]()
    for child in tree.children(node):
        if child.role == "policy" and len(child) and (value := value_of(tree, child)) is not None:
            text = decode(child.actions.tolist())
            if STEP_VALUE in child.scores:
                noted[text] = value
            rest.setdefault(text, []).append(value)
    return [(noted.get(text, sum(values) / len(values)), text) for text, values in rest.items()]


def sft_rows(tree: Tree, decode: Decode, rules: RowRules) -> Iterator[Row]:
    """Steps whose value is above the threshold, each once, those of rollouts that failed included.

    Each stands behind its thought where one was written.
    """
    seen: set[int] = set()
    for leaf in labelled(tree):
        for step in steps_of(tree, leaf):
            value = value_of(tree, step)
            if step.id not in seen and value is not None and value > rules.threshold:
                seen.add(step.id)
                thought = str(step.notes.get(THOUGHT, ""))
                yield {"prompt": before(tree, step, decode), "completion": thought + decode(step.actions.tolist())}


def from_failed(tree: Tree, rules: RowRules) -> tuple[int, int]:
    """How many kept steps there are, and how many of them stand in no rollout that was right."""
    kept: dict[int, bool] = {}
    for leaf in labelled(tree):
        for step in steps_of(tree, leaf):
            value = value_of(tree, step)
            if value is not None and value > rules.threshold:
                kept[step.id] = kept.get(step.id, True) and not solved(leaf)
    return len(kept), sum(kept.values())


def labelled(tree: Tree) -> list[Node]:
    """The leaves that were labelled; all judged ones where none was."""
    judged = [n for n in tree.leaves() if n.status == "done" and "reward" in n.scores and n.parent is not None]
    noted = [n for n in judged if FIRST_ERROR in n.notes]
    return noted or judged


def looked_back(values: Sequence[float], f: float) -> list[float]:
    """MedS³'s soft look-back, in place as released: the value before is the adjusted one."""
    out = list(values)
    for i in range(1, len(out)):
        out[i] = out[i] - f * (out[i - 1] - out[i])
    return out


def before(tree: Tree, node: Node, decode: Decode) -> str:
    """The text that a node was written after."""
    return "".join(decode(n.actions.tolist()) for n in tree.path(node)[:-1])


ROWS: dict[str, Callable[[Tree, Decode, RowRules], Iterator[Row]]] = {"prm": prm_rows, "dpo": dpo_rows, "sft": sft_rows}


def write_rows(rows: Iterable[Row], path: Path, *, overwrite: bool = False) -> int:
    """Write rows as JSON lines or Parquet, by the file's ending; how many there were. No rows are refused."""
    found = list(rows)
    if not found:
        raise StepRowsError(
            "these rollouts give no rows: no step has a value, or none passes the threshold; label them first "
            "(rolltree solve step_labels), or lower --threshold or --margin"
        )
    if path.exists() and not overwrite:
        raise StepRowsError(f"{path} exists and is kept as it is; give another --out, or --overwrite")
    if path.suffix == ".parquet":
        with new_path(path, overwrite=overwrite) as partial:
            pq.write_table(pa.Table.from_pylist(found), partial)
    elif path.suffix == ".jsonl":
        with new_file(path, overwrite=overwrite) as sink:
            sink.writelines(f"{json.dumps(row)}\n" for row in found)
    else:
        raise StepRowsError(f"{path} ends in neither .jsonl nor .parquet; give the file one of these endings")
    return len(found)
