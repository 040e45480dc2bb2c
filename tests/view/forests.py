"""Forests and folders for the viewer's tests: a small one with everything in it, hostile texts, and a huge one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.tree import Forest, Top, Tree
from rolltree.tree.store.parquet import FILES, save, save_step

MARKUP = "<script>window.planted=1</script><img src=x onerror=window.planted=2><b>bold</b>"
LETTERS = sorted(set(MARKUP) | set("abcdefghijklmnopqrstuvwxyz 0123456789"))


def ids(text: str) -> list[int]:
    return [LETTERS.index(c) for c in text]


def a_tree(name: str = "t0", *, hostile: bool = False) -> Tree:
    """A prompt, a shared beginning, a tool's answer, three leaves: solved, wrong, pruned."""
    say = MARKUP if hostile else "some words"
    tree = Tree(name, ids("a prompt " + say), task="words", item=f"item {name}")
    first = tree.extend(
        0,
        ids("call " + say),
        logp=_ramp(5 + len(say)),
        sampling_logprob=_ramp(5 + len(say), 0.2),
        entropy=_ramp(5 + len(say), 1),
        version=np.full(5 + len(say), 3, np.int32),
        status="done",
        finish="tool",
        top=Top(
            np.tile(np.array(ids("cab"), np.int32), (5 + len(say), 1)),
            np.tile(np.array([-0.1, -2.0, -5.0], np.float32), (5 + len(say), 1)),
        ),
    )
    answer = tree.extend(first, ids("tool " + say), role="env", actor="calculator", state={"board": say, "turn": 1},
                         state_key=say, status="done", scores={"step_reward": 0.5})  # fmt: skip
    good = _leaf(tree, answer.id, "good", 1.0, 4)
    _leaf(tree, answer.id, "wrong", 0.0, 3)
    hint = tree.extend(answer, ids("hint"), role="hint", forced=True, status="done")
    lost = _leaf(tree, hint.id, "lost", None, 4)
    tree.event("fork", answer, f"entropy was high {say}", n=3, entropy=1.25, children=[good.id, good.id + 1, hint.id])
    tree.event("stop", good, "answer", reward=1.0)
    tree.prune(lost, f"below the bar {say}", score=0.125, bar=0.5)
    good.notes["answer"] = say
    return tree


def _leaf(tree: Tree, above: int, text: str, reward: float | None, version: int):
    size = len(text)
    up = reward or 0.0
    return tree.extend(
        above,
        ids(text),
        logp=_ramp(size),
        sampling_logprob=_ramp(size),
        entropy=_ramp(size, 0.5),
        status="done",
        finish="eos",
        version=np.full(size, version, np.int32),
        gain=np.full(size, up, np.float32),
        usage="trained",
        loss=np.full(size, up - 1.0, np.float32),
        weight=np.ones(size, np.float32),
        scores={} if reward is None else {"reward": reward, "format": 1.0},
    )


def _ramp(size: int, start: float = -1.0) -> np.ndarray:
    return np.linspace(start, start + 0.5, size, dtype=np.float32)


def tokenizer(folder: Path) -> None:
    """A tokenizer.json of one letter per id, as a checkpoint has one."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({c: i for i, c in enumerate(LETTERS)}, unk_token=LETTERS[0]))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    made.decoder = decoders.Fuse()
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))


def a_run(folder: Path, *, hostile: bool = False, steps: int = 2, trees: int = 3) -> Path:
    """A run folder as training leaves it, small."""
    folder.mkdir(parents=True)
    say = MARKUP if hostile else "tiny"
    config = {
        "parts": {"name": "grpo"},
        "recipe": {"is": "Grpo", "group": 8, "clip": 0.2},
        "task": ["words", 1],
        "model": say if hostile else "nano",
        "train": {"seed": 7, "steps": 9, "optim": {"lr": 0.001}},
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer(folder / "checkpoints" / "step-000002")
    with (folder / "metrics.jsonl").open("w") as sink:
        for step in range(1, steps + 1):
            add_step(folder, step, trees=trees, hostile=hostile)
            sink.write(json.dumps(a_line(step)) + "\n" + json.dumps(an_evaluation(step)) + "\n")
    return folder


def an_evaluation(step: int) -> dict[str, object]:
    rate = step / 10
    return {
        "kind": "eval",
        "step": step,
        "eval/pass@1": rate,
        "eval/pass@1_low": rate / 2,
        "eval/pass@1_high": rate * 2,
    }


def a_line(step: int) -> dict[str, object]:
    return {"kind": "train", "step": step, "reward/mean": 0.25 * step, "policy/entropy": 1.0 / step,
            "budget/decoded_total": 100.0 * step, "time/total": 2.0 * step}  # fmt: skip


def add_step(folder: Path, step: int, *, trees: int = 3, hostile: bool = False) -> None:
    save_step(Forest([a_tree(f"t{i}", hostile=hostile) for i in range(trees)]), folder / "forests", step)


def huge(folder: Path, nodes: int = 1_000_000) -> int:
    """About so many nodes in one step: a saved forest whose rows are written again and again under other tree ids."""
    small = folder / "small"
    count = 400
    save(Forest([a_tree(f"t{i}") for i in range(count)]), small)
    copies = -(-nodes // (count * 7))
    big = folder / "run" / "forests" / "step=1"
    big.mkdir(parents=True)
    for name in FILES:
        table = pq.read_table(small / f"{name}.parquet")
        names = table["tree"].to_pylist()
        at = table.schema.get_field_index("tree")
        with pq.ParquetWriter(big / f"{name}.parquet", table.schema, compression="zstd") as writer:
            for copy in range(copies):
                renamed = pa.array([f"{copy}-{n}" for n in names], pa.string())
                writer.write_table(table.set_column(at, table.schema.field(at), renamed))
    (folder / "run" / "config.json").write_text('{"parts": {"name": "huge"}, "task": ["words", 1]}')
    tokenizer(folder / "run" / "checkpoints" / "step-000001")
    return copies * count * 7
