"""Bad input: one clear sentence naming the thing, the value and the way out."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a place that takes no more."""
REFUSED = (*FULL, errno.EROFS, errno.EIO)
"""What a write says of a place that takes nothing, for whatever reason; the system names no file then."""
_LIBRARIES = re.compile(r"os error (\d+)|\[errno (\d+)\]", re.IGNORECASE)
"""How libraries written in Rust and C++ hand on what the system said."""


class RolltreeError(Exception):
    """Something the user can mend. The command line prints it as one line and exits with 2; nothing was overwritten."""


class UnknownNameError(RolltreeError, LookupError):
    """A name no registry knows."""


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownNameError:
    """The error for a name that is not registered, with the nearest known one."""
    names = sorted(known)
    way = did_you_mean(name, names) or f"known: {', '.join(names) or 'none'}"
    return UnknownNameError(f"unknown {kind} {name!r}: {way}" + (f" ({hint})" if hint else ""))


def unknown_knob(what: str, knob: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a knob that a part does not have, with the nearest one it has."""
    names = list(known)
    way = did_you_mean(knob, names) or f"it has {', '.join(names) or 'none'}"
    return UnknownNameError(f"{what} has no knob {knob!r}; {way}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question after the nearest known name; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def refused_write(error: BaseException) -> OSError | None:
    """The system's refusal to write that stands behind an error, whichever library raised it; None where none does."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in REFUSED:
            return seen
        found = _LIBRARIES.search(str(seen))
        code = int(found[1] or found[2]) if found is not None else 0
        if code in REFUSED:
            return OSError(code, os.strerror(code))
        seen = seen.__cause__ or seen.__context__
    return None


# What goes wrong with models.


class ModelError(RolltreeError, RuntimeError):
    """A model cannot be loaded or used: names the model, what is wrong and the way out."""
