"""What the verbs share: parsing with tyro, a console, JSON for machines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from rolltree.errors import RolltreeError
from rolltree.knobs import check_instance
from rolltree.terminal import Terminal
from rolltree.visible import visible

T = TypeVar("T")

PLAIN = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands)
"""Knobs of nested dataclasses keep their bare names: `--lr`, not `--config.optim.lr`."""


def parse(shape: type[T] | Any, arguments: Sequence[str], verb: str, about: str, *, prefixes: bool = False) -> T:
    """Arguments of a verb as an instance of its dataclass; unknown ones are refused with the nearest known.

    With `prefixes` only what the shape itself marks keeps bare names.
    """
    config = PLAIN[1:] if prefixes else PLAIN
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            asked = tyro.cli(shape, args=list(arguments), prog=f"rolltree {verb}", description=about, config=config)
    finally:
        sys.stderr.write(visible(said.getvalue()))  # what was given is repeated there
    check_instance("", asked, lambda name: f"--{name.replace('_', '-')}")
    return asked


def emit(data: Any) -> None:
    """One JSON document on stdout."""
    json.dump(data, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


def console() -> Console:
    """Where people read; wide enough to keep tables whole when piped."""
    return Terminal() if sys.stdout.isatty() else Terminal(width=140)


def grid(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of rows that share their keys."""
    out = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for key in rows[0] if rows else ():
        numeric = all(isinstance(row[key], int | float) for row in rows)
        out.add_column(key, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        out.add_row(*(f"{v:.3g}" if isinstance(v, float) else visible(str(v)) for v in row.values()))
    return out


def at_least(least: int, **counts: int) -> None:
    """Refuse a count below what makes sense, by the name of its option."""
    for name, count in counts.items():
        if count < least:
            option = f"--{name.replace('_', '-')}"
            raise RolltreeError(f"{option} {count} makes no sense; give a whole number of at least {least}")


def kept(source: Path, out: Path | None) -> None:
    """Refuse to write over the very file that is read, whatever may be overwritten."""
    if out is not None and out.resolve() == source.resolve():
        raise RolltreeError(f"--out {out} is the file that is read, and would be lost; give another name")


def first_name(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """A leading positional name and the rest; None when the first argument is an option."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], list(arguments[1:])
    return None, list(arguments)


def leading_names(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """All positional names before the first option, and the rest."""
    count = next((i for i, a in enumerate(arguments) if a.startswith("-")), len(arguments))
    return list(arguments[:count]), list(arguments[count:])
