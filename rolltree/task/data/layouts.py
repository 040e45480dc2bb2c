"""Which column is the prompt, which the answer: GSM8K's, verl's and TRL's layouts are recognised by their columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rolltree.task.data.source import DataRow
from rolltree.task.items import TaskError

PROMPTS = ("prompt", "question", "problem", "instruction", "query", "input")
"""Columns taken for the prompt, in this order."""
ANSWERS = ("answer", "solution", "ground_truth", "target", "label", "final_answer")
"""Columns taken for the answer, in this order."""
FINAL = "####"
"""What stands before the final answer in GSM8K's solutions."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand in a row. A dot reaches into a column: `reward_model.ground_truth`."""

    prompt: str
    answer: str = ""
    """"" = there is none."""
    kind: str = "columns"
    """What it was recognised as: verl, gsm8k, or columns."""


def recognise(rows: Sequence[DataRow], prompt: str = "", answer: str = "") -> Layout:
    """The layout of rows; names that are given go before what is recognised."""
    first = rows[0]
    columns = list(first.values)
    for option, name in (("--prompt", prompt), ("--answer", answer)):
        if name and all(find(row.values, name) is _MISSING for row in rows):
            raise TaskError(f"{first.where} has no column {name!r} ({option}); its columns are {', '.join(columns)}")
    if not prompt and not answer and "prompt" in columns and find(first.values, VERL) is not _MISSING:
        return Layout("prompt", VERL, "verl")
    asked = prompt or next((name for name in PROMPTS if name in columns), "")
    if not asked:
        if answer or any(name in columns for name in ANSWERS):
            raise TaskError(
                f"{first.where}: field 'prompt' is missing or empty; name the column with --prompt "
                f"(columns: {', '.join(columns)})"
            )
        raise TaskError(
            f"no column of {first.where} is known as a prompt ({', '.join(columns) or 'there are none'}); "
            "name one with --prompt"
        )
    names = {name for row in rows for name in row.values}
    told = answer or next((name for name in ANSWERS if name in names and name != asked), "")
    worked = told and all(FINAL in str(find(row.values, told)) for row in rows[:8])
    return Layout(asked, told, "gsm8k" if worked else "columns")


VERL = "reward_model.ground_truth"


@dataclass(frozen=True, slots=True)
class Question:
    """What a row asks, before any chat template."""

    id: str
    prompt: str | tuple[Mapping[str, Any], ...]
    """A text, or messages."""
    answer: str
    level: int
    columns: Mapping[str, Any]
    """All other columns, as rewards get them."""
    split: str | None
    """What a column `split` says."""
    where: str

    @property
    def content(self) -> str:
        """The prompt in one canonical text: what decides the split and which rows are the same."""
        return self.prompt if isinstance(self.prompt, str) else json.dumps(self.prompt, sort_keys=True, default=str)


def question(row: DataRow, layout: Layout) -> Question:
    """One row as a question; a field that cannot be used is named by its line."""
    values, where = row.values, row.where
    prompt = find(values, layout.prompt)
    if prompt is _MISSING or prompt in (None, []) or (isinstance(prompt, str) and not prompt.strip()):
        raise TaskError(
            f"{where}: field {layout.prompt!r} is missing or empty; leave the row out, or name another column with "
            "--prompt"
        )
    answer = _answer(values, layout, where) if layout.answer else ""
    level, split = values.get("level", 0), values.get("split")
    if layout.kind == "columns" and not isinstance(level, int | None):
        if layout.prompt == "prompt":
            raise TaskError(f"{where}: field 'level' must be a whole number, not {level!r}")
        level = 0  # foreign data sets use the word for other things ("Level 5")
    if split is not None and split not in ("train", "test"):
        raise TaskError(f"{where}: field 'split' must be 'train' or 'test', not {split!r}")
    columns = {k: v for k, v in values.items() if k != layout.prompt}
    name = values.get("id", (values.get("extra_info") or {}).get("item") if layout.kind == "verl" else None)
    return Question(
        "" if name is None else str(name), _prompt(prompt, layout.prompt, where), answer,
        level if isinstance(level, int) else 0, columns, split, where,
    )  # fmt: skip


def _prompt(prompt: Any, name: str, where: str) -> str | tuple[Mapping[str, Any], ...]:
    if isinstance(prompt, str):
        if any("\ud800" <= character <= "\udfff" for character in prompt):
            raise TaskError(f"{where}: field {name!r} holds half a character, which no tokenizer reads; write it whole")
        return prompt
    given = cast(list[Any], prompt) if isinstance(prompt, list) else []
    if not given:
        raise TaskError(f"{where}: field {name!r} must be text or a list of messages, not {type(prompt).__name__}")
    for message in given:
        if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
            raise TaskError(f"{where}: a message of {name!r} needs role and content, and {message!r} has not both")
    return tuple({k: v for k, v in m.items() if v is not None} for m in cast(list[Mapping[str, Any]], given))


def _answer(values: Mapping[str, Any], layout: Layout, where: str) -> str:
    answer = find(values, layout.answer)
    if answer is _MISSING or answer is None or (isinstance(answer, str) and not answer.strip()):
        raise TaskError(
            f"{where}: field {layout.answer!r} is missing or empty; leave the row out, or name another column with "
            "--answer; where no reward reads answers, leave --answer out or rename the column"
        )
    if isinstance(answer, list | dict) and layout.kind == "verl":
        return json.dumps(answer)
    if not isinstance(answer, str | int | float):
        raise TaskError(
            f"{where}: field {layout.answer!r} must be text or a number, not {type(cast(object, answer)).__name__}"
        )
    if layout.kind == "gsm8k":
        final = str(answer).rpartition(FINAL)[2].strip()
        if FINAL not in str(answer) or not final:
            raise TaskError(f"{where}: no answer stands behind {FINAL} in {layout.answer!r}")
        return final.replace(",", "")
    return str(answer)


_MISSING: Any = object()


def find(values: Mapping[str, Any], name: str) -> Any:
    """A column, or what a dotted name reaches in it."""
    if name in values:
        return values[name]
    here: Any = values
    for part in name.split("."):
        if not isinstance(here, Mapping) or part not in here:
            return _MISSING
        here = cast(Mapping[str, Any], here)[part]
    return here
