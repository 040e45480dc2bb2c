"""Rows of a JSON-lines or Parquet file, or of a data set of the Hugging Face hub, each with the place it stands at."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from rolltree.policy.hub import hub_answers
from rolltree.task.items import TaskError, lines_of
from rolltree.task.sandbox.held_back import hold_back
from rolltree.tree.store.values import read_json, why_not

KINDS = (".jsonl", ".json", ".parquet")
"""Endings of files that are data by themselves."""
HUB = "hf:"


@dataclass(frozen=True, slots=True)
class DataRow:
    """One row, and where it stands ("q.jsonl line 3")."""

    values: Mapping[str, Any]
    where: str


def is_data(name: str) -> bool:
    """Whether a task's name is the name of data."""
    return name.startswith(HUB) or name.endswith(KINDS)


def read_data(source: str, limit: int | None = None) -> list[DataRow]:
    """All rows (the first `limit`), in order; what cannot be read is refused by its line."""
    if source.startswith(HUB):
        return list(islice(_hub(source), limit))
    path = Path(source).expanduser()
    if path.is_dir():
        raise TaskError(f"{source} is a folder; name a file in it, or hf:{source} for all of them")
    if not path.is_file():
        raise TaskError(f"there is no file {source}: rows come from a JSON-lines or Parquet file")
    hold_back(path)
    rows = list(islice(_parquet(path, source) if path.suffix == ".parquet" else _lines(path, source), limit))
    if not rows:
        raise TaskError(f"{source} has no rows; give at least one")
    return rows


def _lines(path: Path, source: str) -> Iterator[DataRow]:
    for number, line in lines_of(path):
        if line.strip():
            where = f"{source} line {number}"
            yield DataRow(_object(line, where), where)


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = read_json(line)
    except ValueError as error:
        raise TaskError(f"{where} is not JSON: {why_not(error)}; write one object a line") from None
    if not isinstance(row, dict):
        raise TaskError(f"{where} must be an object with prompt and answer, not {type(row).__name__}; write one a line")
    return cast(Mapping[str, Any], row)


def _parquet(path: Path, source: str) -> Iterator[DataRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise TaskError(f"{source} is no Parquet file that can be read ({str(error).splitlines()[0]})") from None
    return (DataRow(row, f"{source} row {number}") for number, row in enumerate(rows, 1))


def _hub(source: str) -> Iterator[DataRow]:
    """`hf:NAME[:SPLIT]`, through the library datasets: a data set of the hub, or a folder of files."""
    try:
        import datasets
    except ImportError:
        raise TaskError(f"{source} is read by the library datasets: pip install 'rolltree[trl]'") from None
    name, _, split = source.removeprefix(HUB).partition(":")
    if not name:
        raise TaskError("hf: names no data set; write hf:NAME or hf:NAME:SPLIT, as in hf:openai/gsm8k:train")
    # A data set of several configurations is named with one of them behind a "#".
    name, _, config = name.partition("#")
    quiet(datasets)
    if local := Path(name).expanduser().exists():
        hold_back(name)
    alone = not local and not hub_answers()
    try:
        with _offline(datasets, alone):
            held: Any = datasets.load_dataset(name, config or None, split=split or "train")
    except Exception as error:  # the library, its transport and its readers raise many kinds
        if alone and isinstance(error, OSError):
            raise TaskError(
                f"{source} is not in the local cache and the hub cannot be reached; download the data set where it can "
                "be and give the file, or the folder as hf:FOLDER"
            ) from None
        first = (str(error).strip().splitlines() or [""])[0][:200]
        raise TaskError(
            f"{source} cannot be had ({type(error).__name__}: {first}); check name and split, or download it and give "
            "the file or folder"
        ) from None
    return (DataRow(row, f"{source} row {number}") for number, row in enumerate(held, 1))


@contextmanager
def _offline(datasets: Any, alone: bool) -> Generator[None]:
    """Where the hub cannot be reached the library looks into its cache, and not six times for the hub."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or alone
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def quiet(datasets: Any) -> None:
    """No bars for what takes a second."""
    datasets.disable_progress_bars()
