"""A folder of trees that is written while they grow, so that no end of the program loses what it was told to keep.

`serve.json` says what was served. Each part `step=N` is a saved forest (`rolltree.tree.store.parquet`). A tree stands
in one part, and a part is replaced whole when one of its trees has changed.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rolltree.errors import RolltreeError
from rolltree.tree import Tree
from rolltree.tree.store.atomic import new_file, set_aside
from rolltree.tree.store.parquet import parts, save
from rolltree.tree.store.values import read_json

ABOUT = "serve.json"
TREES = 32
"""Trees of one part."""
ACTIONS = 1 << 18
"""A part with more actions takes no further tree, so that writing it again stays cheap."""


class FolderError(RolltreeError):
    """A folder that takes no trees; names the option, the folder and the way out."""


class TreeFolder:
    """Trees that are written down by `keep`; behind those that an earlier server left there."""

    def __init__(self, folder: Path, about: Mapping[str, Any], option: str = "--out") -> None:
        self.folder = folder
        self.elsewhere: Path | None = None
        """Where trees go since the folder took no more."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _begun(folder, dict(about), option)
            _restored(folder)
            self._last = max((step for step, _ in parts(folder) if step is not None), default=0)
        except OSError as error:
            raise FolderError(
                f"{option} {folder} cannot be written ({error.strerror}); give another place or mend this one"
            ) from None
        self._parts: dict[int, list[Tree]] = {}
        self._part_of: dict[int, int] = {}
        """By identity: the trees of an item may have any names."""
        self._changed: dict[int, Tree] = {}
        self._writing = asyncio.Lock()
        self._tasks = set[asyncio.Task[None]]()
        self._stuck = False

    @property
    def unsaved(self) -> int:
        """Trees whose last changes stand nowhere."""
        return len(self._changed)

    def changed(self, *trees: Tree) -> None:
        """Have trees written with the next `keep`."""
        self._changed.update({id(tree): tree for tree in trees})

    async def keep(self) -> None:
        """Write what has changed. Afterwards it is on the disk, or people were told that it is not.

        One write serves all who wait for it, and goes on where they are cancelled.
        """
        task = asyncio.create_task(self._keep())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _keep(self) -> None:
        async with self._writing:
            changed, self._changed = self._changed, {}
            for number in self._numbers(changed.values()):
                trees = self._parts[number]
                # As they stand now: they grow on while a thread waits for the disk.
                if not await asyncio.to_thread(self._saved, number, pickle.dumps(trees)):
                    self.changed(*(tree for tree in trees if id(tree) in changed))

    def _numbers(self, trees: Iterable[Tree]) -> list[int]:
        """The parts that trees stand in; new trees get a place."""
        for tree in trees:
            if id(tree) not in self._part_of:
                mates = self._parts.get(self._last)
                if mates is None or len(mates) >= TREES or sum(len(n) for mate in mates for n in mate) >= ACTIONS:
                    self._last += 1
                self._parts.setdefault(self._last, []).append(tree)
                self._part_of[id(tree)] = self._last
        return sorted({self._part_of[id(tree)] for tree in trees})

    def _saved(self, number: int, told: bytes) -> bool:
        """Write a part, here or elsewhere; whether that could be done."""
        trees: list[Tree] = pickle.loads(told)
        places = (self.folder,) if self.elsewhere is None else (self.elsewhere, self.folder)
        why: str | None = ""
        for place in places:
            why = _written(trees, place, number)
            if why is None:
                return True
        if self.elsewhere is None:
            with suppress(OSError):
                other = Path(tempfile.mkdtemp(prefix="rolltree-serve-"))
                if _written(trees, other, number) is None:
                    self.elsewhere = other
                    _say(f"{self.folder} CANNOT BE WRITTEN ({why}); from now on everything is saved in {other}")
                    return True
                shutil.rmtree(other, ignore_errors=True)
        if not self._stuck:
            self._stuck = True
            _say(
                f"{self.folder} CANNOT BE WRITTEN ({why}), and no other place either; what was not written is tried "
                "again with every session that ends, and lost if the server is killed before"
            )
        return False


def _written(trees: list[Tree], place: Path, number: int) -> str | None:
    """Why a part could not be written; None where it was."""
    try:
        save(trees, place / f"step={number}", overwrite=True)
    except Exception as error:  # the server goes on whatever it is
        return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return None


def _begun(folder: Path, about: dict[str, Any], option: str) -> None:
    """Make it a folder of trees, unless it is one; refuse another's."""
    file = folder / ABOUT
    if not file.exists():
        if any(not one.name.startswith(".") for one in folder.iterdir()):
            raise FolderError(f"{option} {folder} is not empty and holds nothing of serve; give another name")
        with new_file(file) as sink:
            json.dump(about, sink)
        return
    try:
        stood: Any = read_json(file.read_text(encoding="utf-8"))
    except ValueError:
        stood = None
    if not isinstance(stood, dict):
        raise FolderError(f"{option} {folder}: {ABOUT} cannot be read; give another name, or remove the folder")
    for name, value in about.items():
        if stood.get(name) != value:
            raise FolderError(
                f"{option} {folder} was begun with {name}={stood.get(name)!r}, and now {name} is {value!r}; give "
                "another name"
            )


def _restored(folder: Path) -> None:
    """Put back what a writer that died had set aside."""
    for number in {one.name.split(".")[1] for one in folder.glob(".step=*.replaced")}:
        aside = set_aside(folder / number)
        if not (folder / number).exists():
            aside.rename(folder / number)
        shutil.rmtree(aside, ignore_errors=True)


def _say(what: str) -> None:
    with suppress(OSError):  # where the terminal is gone nobody reads it
        print(f"rolltree: {what}", file=sys.stderr, flush=True)
