"""What can be opened: a run folder, a folder of saved forests, or nodes that another program wrote.

A source never reads outside the folder it was opened on: every file is resolved first, so that links inside a folder
that somebody sent cannot lead elsewhere.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.errors import RolltreeError
from rolltree.recipe.stored import Given, StoredNames
from rolltree.tree.store import jsonl, parquet
from rolltree.tree.store.archive import Archive, open_forest
from rolltree.tree.store.values import StoreError, read_json

# Nodes of other programs: an interchange file, or the same fields as columns of a Parquet file, become a saved forest.
#
# They are converted once into a temporary folder and read like any other forest from there; errors keep the file's
# name, the line (or row) and the field.


class ViewError(RolltreeError, ValueError):
    """Something cannot be shown: names what and the way out."""


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


Kind = Literal["run", "forests", "nodes"]
NODES = (".jsonl", ".json", ".parquet")
DEEPEST = 8
"""Levels of folders that are looked through for runs."""
MOST = 1000
"""Runs shown of one folder."""
FRESH = 1.0
"""Seconds that a look through the folders is good for."""


@dataclass(frozen=True)
class RunSource:
    """One thing the viewer was asked to open, under the name its addresses use."""

    name: str
    path: Path
    """Resolved; nothing outside it is read (but for the tokenizer of a model that the run names)."""
    kind: Kind
    model: str = ""
    """A model's name or folder whose tokenizer turns ids into text; the run's own when empty."""
    given: Given = field(default_factory=Given)
    """What was typed in place of what the run's files name."""

    @property
    def names(self) -> StoredNames:
        """What the run's files name, as far as a stranger may name it."""
        return StoredNames(self.name, self.path if self.path.is_dir() else self.path.parent, self.given)

    def inside(self, *parts: str) -> Path:
        """A path below the source's folder; refuses links that lead out of it."""
        path = self.path.joinpath(*parts)
        if not path.resolve().is_relative_to(self.path):
            raise ViewError(f"{path} leads out of {self.path} and is not opened; copy what it points to into the run")
        return path

    @property
    def config(self) -> dict[str, Any]:
        """The run's config.json; empty for forests of other programs and for runs that have not written it."""
        path = self.inside("config.json")
        return _config(path, _changed(path)) if self.kind == "run" and path.is_file() else {}

    @property
    def forests(self) -> Path:
        """The folder of saved forests; nodes of another program are converted first."""
        if self.kind == "nodes":
            return converted(self.path)
        return self.inside("forests") if self.kind == "run" else self.path

    def steps(self) -> list[int | None]:
        """Steps whose forests are saved, in order; [None] for a single forest without steps."""
        folder = self.forests
        found = [step for step, path in parquet.parts(folder) if (path / "trees.parquet").exists()]
        broken = [path for step, path in parquet.parts(folder) if step is None and (path / "nodes.parquet").exists()]
        return [*found] or ([None] if broken else [])

    @property
    def single(self) -> bool:
        """Whether it is one forest without steps, which opens at its prompts; a damaged one says so on its page."""
        try:
            return self.kind != "run" and self.steps() == [None]
        except RolltreeError:
            return False

    def archive(self, step: int | None) -> Archive:
        """The columns of one step's forest, opened once and kept while it does not change."""
        steps = self.steps()
        if step not in steps:
            known = ", ".join(map(str, steps[:12])) + (" …" if len(steps) > 12 else "")
            what = "the forest" if step is None else f"a forest of step {step}"
            raise ViewError(
                f"{self.name} has not saved {what}; " + (f"saved steps: {known}" if known else nothing(self))
            )
        folder = self.forests if step is None else self.forests / f"step={step}"
        if self.kind != "nodes":
            for path in (folder, *folder.rglob("*")):
                self.inside(str(path))
        return _opened(folder, _changed(folder / "nodes.parquet"))

    def archive_stamp(self) -> Any:
        """Changes whenever a single forest is saved anew."""
        return _changed(self.path / "nodes.parquet")

    def stamp(self) -> tuple[Any, ...]:
        """Changes whenever something new can be shown: what live pages look at."""
        if self.kind == "nodes":
            return (_changed(self.path),)
        folder = self.path / "forests" if self.kind == "run" else self.path
        files = ("metrics.jsonl", "findings.jsonl", "config.json", "in-use.json")
        return (*(_changed(self.path / name) for name in files), _changed(folder))


def open_sources(paths: Sequence[Path | str], model: str = "", given: Given | None = None) -> list[RunSource]:
    """Each path as a source, under distinct names; a path that does not exist or holds no nodes is refused.

    A folder that is no run is looked through for runs and saved forests, at any depth.
    """
    if not paths:
        raise ViewError("name at least one run to view: rolltree view runs/first")
    out: list[RunSource] = []
    taken = set[str]()
    for place in paths:
        path = Path(place)
        if not path.exists():
            raise ViewError(f"there is no run at {path}; give a run folder, a folder of forests or a file of nodes")
        path = path.resolve()
        if path.is_file() and path.suffix not in NODES:
            raise ViewError(f"{path} is no file of nodes; give a folder, or a file that ends in {', '.join(NODES)}")
        for found in discover(path):
            name = _name(found, path, alone=len(paths) == 1)
            if name in taken:
                name = f"{found.parent.name}/{found.name}"
            first, count = name, 2
            while name in taken:
                name, count = f"{first} ({count})", count + 1
            taken.add(name)
            out.append(RunSource(name, found, _kind(found), model, given or Given()))
    return out


def open_source(path: Path | str, model: str = "", given: Given | None = None) -> RunSource:
    """The one source at a path; a folder with several is refused. `given` stands in for what its files name."""
    found = open_sources([path], model, given)
    if len(found) > 1:
        few = ", ".join(s.name for s in found[:6]) + (" …" if len(found) > 6 else "")
        raise ViewError(f"{path} holds {len(found)} runs; name one of them: {few}")
    return found[0]


class FoundSources:
    """The sources at some places as they are now: folders are looked through again at most once a second."""

    def __init__(self, paths: Sequence[Path | str], model: str = "", given: Given | None = None) -> None:
        self._paths, self._model, self._given = tuple(paths), model, given
        self._found, self._at = open_sources(paths, model, given), time.monotonic()

    def __call__(self) -> list[RunSource]:
        """The sources; those known before keep their names and places where a path cannot be read any more."""
        if time.monotonic() - self._at > FRESH:
            with suppress(ViewError, OSError):
                self._found = open_sources(self._paths, self._model, self._given)
            self._at = time.monotonic()
        return self._found


def discover(root: Path) -> list[Path]:
    """The runs and saved forests at or below a folder, by path; links are not followed.

    A folder without any stands for itself: a run that is about to begin.
    """
    if root.is_file() or _is_source(root):
        return [root]
    out: list[Path] = []
    for folder, names, _ in os.walk(root):
        here = Path(folder)
        if _is_source(here):
            out.append(here)
            names.clear()
            continue
        deep = len(here.relative_to(root).parts) >= DEEPEST
        names[:] = [] if deep else sorted(n for n in names if not n.startswith("."))
        if len(out) >= MOST:
            break
    return out or [root]


def _is_source(folder: Path) -> bool:
    # A model's folder has a config.json too, so that alone makes no run.
    if any((folder / name).exists() for name in ("metrics.jsonl", "forests", "nodes.parquet")):
        return True
    return ((folder / "config.json").exists() and (folder / "in-use.json").exists()) or any(folder.glob("step=*"))


def _name(found: Path, root: Path, *, alone: bool) -> str:
    """A source's name below the folder that was named; a run of a comparison's cache is named by its folder there."""
    if found == root:
        return root.name
    below = found.parent if found.name == "run" and (found.parent / "spec.json").exists() else found
    inner = below.relative_to(root).as_posix() if below != root else root.name
    return inner if alone or below == root else f"{root.name}/{inner}"


def nothing(source: RunSource) -> str:
    """What to say of a source without forests."""
    if source.kind == "run":
        return f"{source.name} holds no rollouts yet; train with --forests-every above 0 to keep some"
    return f"{source.name} holds no forests; write them with rolltree.tree.store.parquet.save, or as nodes.jsonl"


@lru_cache(maxsize=256)
def _config(path: Path, changed: tuple[int, int]) -> dict[str, Any]:
    del changed
    try:
        found: Any = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ViewError(f"{path} cannot be read ({error}); the run's settings are not known") from None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _kind(path: Path) -> Kind:
    if path.is_file():
        return "nodes"
    return "forests" if (path / "nodes.parquet").exists() or any(path.glob("step=*")) else "run"


def _changed(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=6)
def _opened(folder: Path, changed: tuple[int, int]) -> Archive:
    del changed  # part of the key: an overwritten forest is opened anew
    return open_forest(folder)
