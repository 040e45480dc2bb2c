"""Nodes of other programs: an interchange file, or the same fields as columns of a Parquet file, become a saved forest.

They are converted once into a temporary folder and read like any other forest from there; errors keep the file's name,
the line (or row) and the field.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.tree.store import jsonl, parquet
from rolltree.tree.store.values import StoreError, read_json
from rolltree.view.links import ViewError

_ROWS = 8192


def converted(path: Path) -> Path:
    """A folder with the saved forest of a file of nodes; the same folder while the file does not change."""
    try:
        stat = path.stat()
    except OSError:
        raise ViewError(f"{path} is gone; start the viewer again with the file where it is now") from None
    return _converted(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _converted(path: Path, changed: int, size: int) -> Path:
    del changed, size  # parts of the key: a file that was written anew is read anew
    forest = jsonl.parse(_rows(path), str(path)) if path.suffix == ".parquet" else jsonl.read(path)
    if not len(forest):
        raise StoreError(f"{path} holds no nodes")
    folder = Path(_home().name) / f"{abs(hash(path)):x}"
    return parquet.save(forest, folder, overwrite=True)


@lru_cache(maxsize=1)
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rolltree-view-")


def _rows(path: Path) -> Iterator[str]:
    """Each row as a line of the interchange format; columns that are null are left out."""
    try:
        file = pq.ParquetFile(path)
        missing = {"tree", "id", "role", "actions"} - set(file.schema_arrow.names)
        if missing:
            raise StoreError(
                f"{path} has no column {sorted(missing)[0]!r}; name its columns like the fields of the interchange "
                "format (tree, id, parent, role, actions, …)"
            )
        for batch in file.iter_batches(_ROWS):
            for row in batch.to_pylist():
                yield json.dumps(_fields(row))
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is no Parquet file, or a damaged one ({str(error).splitlines()[0]})") from None


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its nulls, and with the alternatives of Rolltree's own columns under their interchange name."""
    given = {k: _plain(k, v) for k, v in row.items() if (v is not None or k == "parent") and k != "length"}
    ids, logp, k = (given.pop(name, None) for name in ("top_ids", "top_logp", "top_k"))
    if k:
        rows = range(0, len(ids), k)
        given["top"] = {"k": k, "ids": [ids[i : i + k] for i in rows], "logp": [logp[i : i + k] for i in rows]}
    return given


def _plain(name: str, value: Any) -> Any:
    """Maps come as lists of pairs; a map of scores is an object in the interchange format."""
    if name == "scores" and isinstance(value, list):
        return dict(value)
    if name in ("notes", "tree_notes", "state") and isinstance(value, str):
        return read_json(value)
    return value
