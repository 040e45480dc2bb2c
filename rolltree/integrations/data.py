"""Items as the prompt-only data sets of TRL and verl, and their data sets as items.

TRL: rows with `prompt` (a text or a list of messages) and free columns. verl: Parquet rows with `data_source`,
`prompt` (messages), `ability`, `reward_model` {style, ground_truth} and `extra_info`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.integrations.asking import source
from rolltree.integrations.errors import AdaptError
from rolltree.task.foreign import parts as messages
from rolltree.task.foreign.parts import Render
from rolltree.task.items import TaskError, check_item, digest
from rolltree.task.protocol import Item, Split, Task
from rolltree.tree.store.atomic import new_path

TRIES = 1000
"""Draws without a new prompt after which a task counts as exhausted."""


def distinct_items(task: Task, count: int, *, split: Split = "train", seed: int = 0) -> list[Item]:
    """The first items of a task whose prompts differ: TRL shows a rollout function nothing but the prompt.

    Of an agent's task they are those of the task it plays, as it is given them."""
    task = source(task)
    found: dict[str, Item] = {}
    stale = 0
    for item in task.items(split, seed):
        if item.prompt in found:
            stale += 1
        else:
            found[item.prompt], stale = item, 0
        if len(found) == count:
            return list(found.values())
        if stale == TRIES:
            break
    raise AdaptError(
        f"{task.name} at level {task.level} has {len(found)} {split} prompts that differ, not {count}; "
        "ask for fewer or take another level"
    )


def prompt_rows(items: Iterable[Item], *, chat: bool = False) -> list[dict[str, Any]]:
    """Rows of a TRL prompt-only data set: `prompt`, `item`, `answer` (JSON) and `level`; `chat` makes messages."""
    return [
        {"prompt": _messages(item) if chat else item.prompt, "item": item.id, "answer": _text(item.answer),
         "level": item.level}
        for item in items
    ]  # fmt: skip


def prompt_dataset(items: Iterable[Item], *, chat: bool = False) -> Any:
    """The same as a `datasets.Dataset`."""
    try:
        from datasets import Dataset
    except ImportError:
        raise AdaptError("data sets for TRL need the library datasets: pip install 'rolltree[trl]'") from None
    return Dataset.from_list(prompt_rows(items, chat=chat))


def items_of_rows(
    rows: Iterable[Mapping[str, Any]], *, answer: str = "answer", render: Render | None = None
) -> list[Item]:
    """Items of a TRL prompt-only data set; the column `answer` is what the verifier gets, all others go to `meta`."""
    return [_item(row, number, answer, render) for number, row in enumerate(rows)]


def verl_rows(items: Iterable[Item], source: str, *, ability: str = "reasoning") -> list[dict[str, Any]]:
    """Rows as verl's data files hold them; `extra_info.item` names the item for `verl_reward`."""
    return [
        {
            "data_source": source, "prompt": _messages(item), "ability": ability,
            "reward_model": {"style": "rule", "ground_truth": _text(item.answer)},
            "extra_info": {"index": index, "item": item.id, "level": item.level},
        }
        for index, item in enumerate(items)
    ]  # fmt: skip


def write_verl(items: Iterable[Item], path: str | Path, source: str, *, ability: str = "reasoning") -> Path:
    """Write a data file for verl (`data.train_files`)."""
    rows = verl_rows(items, source, ability=ability)
    if not rows:
        raise AdaptError(f"there are no items to write to {path}; give at least one")
    whole = Path(path)
    with new_path(whole, overwrite=True) as partial:
        pq.write_table(pa.Table.from_pylist(rows), partial)
    return whole


def read_verl(path: str | Path, *, render: Render | None = None, limit: int | None = None) -> list[Item]:
    """The items of one of verl's data files: the answer is the ground truth, everything else goes to `meta`."""
    if not Path(path).is_file():
        raise AdaptError(f"there is no file {path}; give one of verl's Parquet files")
    rows = cast(list[dict[str, Any]], pq.read_table(path).to_pylist())
    out: list[Item] = []
    for number, row in enumerate(islice(rows, limit)):
        truth = (row.get("reward_model") or {}).get("ground_truth")
        named = (row.get("extra_info") or {}).get("item")
        flat = {**row, "answer": truth} | ({"item": named} if named is not None else {})
        out.append(_item(flat, number, "answer", render))
    return out


def text_of(prompt: Any, where: str, render: Render | None = None) -> str:
    """The text of a prompt that is a text or messages; a dialogue of several messages needs `render`."""
    try:
        return messages.text_of(prompt, where, render)
    except TaskError as error:
        raise AdaptError(str(error)) from None


def _item(row: Mapping[str, Any], number: int, answer: str, render: Render | None) -> Item:
    where = f"row {number}"
    if row.get("prompt") is None:
        raise AdaptError(f"{where} has no prompt; its columns are {', '.join(row)}")
    if row.get(answer) is None:
        raise AdaptError(f"{where} has no {answer!r}, so nothing could be verified; its columns are {', '.join(row)}")
    prompt = text_of(row["prompt"], where, render)
    level = row.get("level", 0)
    name = str(row.get("item", f"row-{digest(prompt)}"))
    meta = {key: value for key, value in row.items() if key not in ("prompt", "item", "level")}
    return check_item(Item(name, prompt, row[answer], level if isinstance(level, int) else 0, meta))


def _messages(item: Item) -> list[dict[str, str]]:
    return [{"role": "user", "content": item.prompt}]


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, default=str)
