"""A Python file of the user as a module, loaded once."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from rolltree.errors import RolltreeError


class OwnFileError(RolltreeError, ImportError):
    """A file that cannot be loaded."""


def own_file(path: Path) -> ModuleType:
    """The module that a file defines; what fails in it is one sentence with the file's name."""
    if not path.is_file():
        raise OwnFileError(f"there is no file {path}; give the path of a Python file, then a colon and a name")
    whole = path.resolve()
    name = f"rolltree_file_{hashlib.blake2b(str(whole).encode(), digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Known by name while it runs, as dataclasses and pickles expect.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception):
            raise OwnFileError(f"{path} cannot be imported: {raised(error, str(whole))}") from error
        if isinstance(error, SystemExit):  # else the whole program would end, with the code of the file
            raise OwnFileError(
                f"{path} leaves the program when it is imported (sys.exit); put what it runs below "
                "if __name__ == '__main__'"
            ) from error
        raise
    return module


def member(module: Any, name: str, where: object) -> Any:
    """What a module of somebody's holds under a name; MISSING where it holds nothing of it."""
    try:
        return getattr(module, name, MISSING)
    except Exception as error:  # a module may have a __getattr__ of its own
        raise OwnFileError(f"{where} does not give {name!r}: {raised(error)}") from error


MISSING = object()
"""Nothing stands under a name."""


def raised(error: BaseException, file: str = "") -> str:
    """An exception in one line, with its place: the last one in a file, or the last one of all."""
    try:
        told = " ".join(str(error).split())
    except Exception:  # an exception of somebody's own class may fail to tell
        told = ""
    if isinstance(error, ImportError | SyntaxError) and told:
        return told  # which says what is missing, or where it is no Python
    said = f"{type(error).__name__}: {told}" if told else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename == file] or [f for f in frames if not f.filename.startswith("<frozen")]
    return f"{said} ({Path(mine[-1].filename).name} line {mine[-1].lineno})" if mine else said
