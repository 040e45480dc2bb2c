"""A folder of answers that survives kills: `config.json` (what was asked), `answers.jsonl`, `forests/`, `report.json`.

`rolltree view` opens it as it does a run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, cast

from rolltree.errors import RolltreeError
from rolltree.rollout.solve import SolvedItem
from rolltree.tree import Forest, Tree
from rolltree.tree.store.atomic import naming, new_file
from rolltree.tree.store.parquet import save
from rolltree.tree.store.values import read_json

KEPT = 32
"""Items whose trees are written together."""


class AnswersError(RolltreeError):
    """A folder that holds other answers, or none that can be read; names it and the way out."""


class AnswerFolder:
    """One line is written for each answer as soon as it is there; a line that a kill cut off is made again."""

    def __init__(self, folder: Path, asked: Mapping[str, Any], *, trees: bool = True) -> None:
        self.folder = folder
        self.trees = trees
        self.answers: list[SolvedItem] = []
        self._waiting: list[Tree] = []
        self._part = 0
        plain = json.loads(json.dumps(asked, default=str))
        told = folder / "config.json"
        if told.exists():
            _same(told, plain)
            self.answers = read_answers(folder / "answers.jsonl")
            _write_lines(folder / "answers.jsonl", self.answers)
            self._part = len(list((folder / "forests").glob("step=*"))) if (folder / "forests").is_dir() else 0
        elif folder.exists() and any(folder.iterdir()):
            raise AnswersError(f"{folder} is not empty and holds no answers of solve; give another --out")
        else:
            with new_file(told) as sink:
                sink.write(json.dumps(plain, indent=1))

    def add(self, answer: SolvedItem, forest: Forest) -> None:
        """Write an answer down; its trees follow with those of others."""
        self.answers.append(answer)
        place = self.folder / "answers.jsonl"
        with naming(place), place.open("a", encoding="utf-8") as sink:
            sink.write(f"{json.dumps(asdict(answer))}\n")
            sink.flush()
            os.fsync(sink.fileno())
        if self.trees:
            self._waiting.extend(forest)
            if len(self._waiting) >= KEPT:
                self._save()

    def close(self, report: Mapping[str, Any]) -> None:
        """Write the last trees, the answers in the items' order, and the report."""
        self._save()
        self.answers.sort(key=lambda a: a.index)
        _write_lines(self.folder / "answers.jsonl", self.answers)
        with new_file(self.folder / "report.json", overwrite=True) as sink:
            sink.write(json.dumps(report, indent=1))

    def _save(self) -> None:
        if self._waiting:
            self._part += 1
            save(self._waiting, self.folder / "forests" / f"step={self._part}", states="drop")
            self._waiting = []


def read_answers(path: Path) -> list[SolvedItem]:
    """Whole lines of an answers' file; none where there is no file. A last line that a kill cut off is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    out: list[SolvedItem] = []
    names = {f.name for f in fields(SolvedItem)}
    needed = {f.name for f in fields(SolvedItem) if f.default is f.default_factory is MISSING}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = read_json(line)
        except ValueError:
            row = None
        if isinstance(row, dict) and needed <= set(cast("dict[str, Any]", row)) <= names:
            out.append(SolvedItem(**cast("dict[str, Any]", row)))
        elif number < len(lines):  # behind the last one no newline stands: it was being written
            raise AnswersError(f"{path} line {number} is no answer of solve; remove the line or the folder")
    return out


def _write_lines(path: Path, answers: Sequence[SolvedItem]) -> None:
    with new_file(path, overwrite=True) as sink:
        sink.writelines(f"{json.dumps(asdict(answer))}\n" for answer in answers)


def _same(told: Path, asked: Mapping[str, Any]) -> None:
    try:
        stood: dict[str, Any] = read_json(told.read_text(encoding="utf-8"))
        other = sorted(k for k in {*stood, *asked} if stood.get(k) != asked.get(k))
    except (ValueError, AttributeError):
        raise AnswersError(f"{told} cannot be read; give another --out, or remove the folder") from None
    if other:
        name = other[0]
        raise AnswersError(
            f"{told.parent} holds answers made with {name}={stood.get(name)!r}, and now {name}={asked.get(name)!r} is "
            "asked; give another --out, or ask as before to go on"
        )
