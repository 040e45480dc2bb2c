"""Which files a sandboxed agent may read: the system's, its own folder, and the environment of its interpreter.

Never opened is what holds something that is not the agent's: `/`, a home, the working folder, the data, a run's output
and the folder of temporary files, or a folder above one of these. There a program gets its own file alone, and an
environment its parts.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from rolltree.task.sandbox.held_back import held_back

SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random",
)  # fmt: skip
HOMES = (Path("/home"), Path("/Users"))
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
MARKS = ("pyvenv.cfg", "lib/python3*/os.py", "conda-meta", "include/node/node.h", "libexec/pyenv")
"""What proves that the folder above a program's `bin` is an environment: of venv, Python, conda, node, pyenv."""
PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")
"""Of an environment that is not opened whole."""
CHAIN = 4
"""Programs that start each other by their first line, or environments that are made from each other, at most."""


def places(words: Sequence[str]) -> list[Path]:
    """What is opened for a command."""
    return list(_places(tuple(words), _private(), os.environ.get("PATH", "")))


@lru_cache(maxsize=64)
def _places(words: tuple[str, ...], private: frozenset[Path], _: str) -> tuple[Path, ...]:
    out = {part for place in SYSTEM for part in around(Path(place), private)}
    for file in _files(words):
        own = file.resolve()
        out.add(own.parent if may_open(own.parent, private) else own)
        for prefix in _environments(file):
            whole = may_open(prefix, private)
            out |= {prefix} if whole else {part for name in PARTS for part in around(prefix / name, private)}
    return tuple(sorted(out))


def withheld(words: Sequence[str]) -> list[str]:
    """Folders of what the command names that are not opened, for they hold what is not the agent's."""
    folders = {file.resolve().parent for file in _files(words)}
    return sorted(str(folder) for folder in folders if not may_open(folder))


def may_open(folder: Path, private: frozenset[Path] | None = None) -> bool:
    """Whether a folder holds nothing that is not an agent's."""
    folder = folder.resolve()
    return folder.parent not in HOMES and not any(each.is_relative_to(folder) for each in private or _private())


def around(place: Path, private: frozenset[Path] | None = None) -> list[Path]:
    """A place, or where something in it is held back, all else in it. Links out of it are left out."""
    place = place.resolve()
    inside = frozenset(each for each in private or _private() if each.is_relative_to(place))
    if not inside:
        return [place] if place.exists() else []
    if place in inside:
        return []
    return sorted(part for each in _listed(place) if not each.is_symlink() for part in around(each, inside))


def _private() -> frozenset[Path]:
    """What is no agent's. A working folder that holds the system's shell is not meant as one."""
    homes = [os.path.expanduser("~")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    here, shell = Path.cwd().resolve(), Path("/bin/sh").resolve()
    told = (*homes, *TEMPORARY, tempfile.gettempdir())
    found = {*held_back(), *_for_root_alone(), *(Path(each).resolve() for each in told if os.path.isabs(each)), here}
    return frozenset(each for each in found if not shell.is_relative_to(each)) | {Path("/")}


@cache
def _for_root_alone() -> frozenset[Path]:
    """What in /etc other users may not read: an agent of root does not either."""
    if os.getuid():
        return frozenset()
    kept = [Path(folder, name) for folder, names, files in os.walk("/etc") for name in (*names, *files)]
    return frozenset(each for each in kept if not each.is_symlink() and not each.stat().st_mode & stat.S_IROTH)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _files(words: Sequence[str]) -> Iterator[Path]:
    """The program, the files that the command names, and what starts each by its first line."""
    for number, word in enumerate(words):
        named = shutil.which(word) if number == 0 else word if Path(word).is_file() else None
        for _ in range(CHAIN):
            if named is None:
                break
            yield Path(named).absolute()
            named = _interpreter(Path(named))


def _interpreter(program: Path) -> str | None:
    """What a script names in its first line."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return shutil.which(words[0]) if words else None


def _environments(program: Path) -> list[Path]:
    """The environments that a program stands in, by its own name and behind links, and those they were made from."""
    out: list[Path] = []
    asked = [program.parent.parent, program.resolve().parent.parent]
    while asked and len(out) < 2 * CHAIN:
        prefix = asked.pop()
        if prefix in out or not any(any(prefix.glob(mark)) for mark in MARKS):
            continue
        out.append(prefix)
        for base in _made_from(prefix / "pyvenv.cfg"):
            asked += [base.parent, base.resolve().parent]
    return out


def _made_from(file: Path) -> list[Path]:
    """The folder of programs of the Python that an environment was made from."""
    try:
        lines = [line.partition("=") for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    return [Path(value.strip()) for name, _, value in lines if name.strip() == "home" and os.path.isabs(value.strip())]
