"""Prompts with mathematical answers from a JSON-lines file, scored by math-verify (Hugging Face).

Every line is an object with `prompt` and `answer`, and optionally `id`, `level` and `split`; without a split the
prompt's hash decides. math-verify reads the last expression of a text (LaTeX or plain) and compares it with the answer
by value, so that 1/2, 0.5 and \\frac{1}{2} are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from rolltree.task.items import TaskError, check_item, digest, split_of
from rolltree.task.judge import warn_where_open
from rolltree.task.math_judge import judge_math
from rolltree.task.math_score import require_math
from rolltree.task.nano.single import SingleTurn
from rolltree.task.protocol import Item, Split, Verdict


class MathAnswers(SingleTurn):
    """The items of a file, reshuffled on every pass."""

    def __init__(self, path: str, max_tokens: int = 1024, stop: tuple[str, ...] = ()) -> None:
        require_math()
        self.name = f"jsonl:{path}"
        self.level = 0
        self.stop = stop
        self.max_tokens = max_tokens
        self.max_turns = 0
        self._path = path
        self._items = read_jsonl(path)
        warn_where_open()

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """All items of the split in a random order, again and again."""
        chosen = [item for item in self._items if item.meta["split"] == split]
        if not chosen:
            raise TaskError(f'{self._path} has no {split} items: give some lines a "split" of {split!r} or more lines')
        rng = Random(f"{self._path}/{split}/{seed}")
        while True:
            yield from rng.sample(chosen, len(chosen))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Equality in value with the answer."""
        return await judge_math(str(item.answer), text)


def read_jsonl(path: str) -> tuple[Item, ...]:
    """The items of a file; a bad line is refused by its number and field."""
    file = Path(path)
    if not file.is_file():
        raise TaskError(f"there is no file {path}: jsonl:PATH needs JSON lines with prompt and answer")
    items: list[Item] = []
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            items.append(_item(line, f"{path} line {number}"))
    seen: dict[str, Item] = {}
    for item in items:
        if seen.setdefault(item.id, item) is not item:
            raise TaskError(f"{path} names two items {item.id!r}: ids (or prompts, where no id is given) must differ")
    return tuple(items)


def _item(line: str, where: str) -> Item:
    """One line as an item."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TaskError(f"{where} is not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(row, dict):
        raise TaskError(f"{where} must be an object with prompt and answer, not {type(row).__name__}")
    for key in ("prompt", "answer"):
        if row.get(key) in (None, ""):
            raise TaskError(f"{where}: field {key!r} is missing or empty")
    prompt, answer, level = row["prompt"], row["answer"], row.get("level", 0)
    if not isinstance(prompt, str):
        raise TaskError(f"{where}: field 'prompt' must be text, not {type(prompt).__name__}")
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise TaskError(f"{where}: field 'prompt' holds half a character, which no tokenizer reads; write it whole")
    if not isinstance(answer, str | int | float):
        raise TaskError(f"{where}: field 'answer' must be text or a number, not {type(answer).__name__}")
    if not isinstance(level, int):
        raise TaskError(f"{where}: field 'level' must be a whole number, not {level!r}")
    split = row.get("split", split_of(prompt))
    if split not in ("train", "test"):
        raise TaskError(f"{where}: field 'split' must be 'train' or 'test', not {split!r}")
    return check_item(Item(str(row.get("id", f"jsonl-{digest(prompt)}")), prompt, str(answer), level, {"split": split}))
