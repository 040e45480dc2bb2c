"""The help of a verb, written from the dataclass of its arguments: one option, one sentence, no word broken."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from rolltree.errors import RolltreeError
from rolltree.knobs.amounts import TOKENS
from rolltree.knobs.help import COMMON, sentences
from rolltree.registry import raised

_WORDS: dict[Any, str] = {bool: "", int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH", Any: "VALUE"}
_LONGEST, _GAP = 24, 2
"""Widest column of options; a longer option has a line of its own."""


@dataclass(frozen=True, slots=True)
class Option:
    """One argument as help shows it."""

    names: str
    about: str
    positional: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """The options of one dataclass under a heading."""

    heading: str
    about: str
    options: tuple[Option, ...]


def help_of(shape: type[Any], command: str, about: str, *, prefixes: bool = False, width: int | None = None) -> str:
    """The whole text; as wide as the terminal, between 60 and 100 columns."""
    wide = width or min(max(shutil.get_terminal_size().columns, 60), 100)
    found = list(sections(shape, prefixes=prefixes))
    given = " ".join(option.names for section in found for option in section.options if option.positional)
    paragraphs = [f"usage: {command} {given + ' ' if given else ''}[OPTIONS]", _prose(about, wide)]
    for section in found:
        shown = [f"{section.heading}:"]
        if section.about:
            shown += [textwrap.indent(_prose(section.about, wide - 2), "  "), ""]
        paragraphs.append("\n".join([*shown, *columns(section.options, wide)]))
    return "\n\n".join(paragraphs)


def sections(
    shape: type[Any], heading: str = "Options", prefix: str = "", *, prefixes: bool = False
) -> Iterator[Section]:
    """The options of a dataclass, then those of the dataclasses in it. A heading is in the field's metadata.

    With `prefixes` the options of a nested dataclass are prefixed with its name, unless it is marked otherwise.
    """
    kinds = _kinds(shape)
    told = sentences(shape)
    own: list[Option] = []
    inner: list[Section] = []
    for field in fields(shape):
        if not field.init:
            continue
        kind, marks = _bare(kinds[field.name])
        if is_dataclass(kind) and isinstance(kind, type):
            prefixed = prefixes and tyro.conf.OmitArgPrefixes not in marks
            title = str(field.metadata.get("heading", field.name.capitalize()))
            inner += sections(kind, title, f"{prefix}{field.name}." if prefixed else prefix, prefixes=prefixes)
        elif (word := _word(kinds[field.name])) is not None:
            about = told.get(field.name) or COMMON.get(field.name, "")
            own.append(_option(field, kind, word, about=about, marks=marks, prefix=prefix))
    about = "" if not heading or heading == "Options" else _doc(shape)
    if own:
        yield Section(heading, about, tuple(own))
    yield from inner


def _kinds(shape: type[Any]) -> dict[str, Any]:
    """The annotations of a dataclass, which may be somebody's own."""
    try:
        return get_type_hints(shape, include_extras=True)
    except Exception as error:
        raise RolltreeError(
            f"the annotations of {shape.__name__} cannot be read: {raised(error)}; mend the types of its fields"
        ) from error


def switched(shape: type[Any], prefix: str = "", *, prefixes: bool = False) -> list[str]:
    """Options of switches that are on by default."""
    out: list[str] = []
    kinds = _kinds(shape)
    for field in fields(shape):
        kind, marks = _bare(kinds[field.name])
        if is_dataclass(kind) and isinstance(kind, type):
            prefixed = prefixes and tyro.conf.OmitArgPrefixes not in marks
            out += switched(kind, f"{prefix}{field.name}." if prefixed else prefix, prefixes=prefixes)
        elif kind is bool and field.default is True:
            out.append(f"--{prefix}{field.name.replace('_', '-')}")
    return out


def _option(field: Field[Any], kind: Any, word: str, *, about: str, marks: tuple[Any, ...], prefix: str) -> Option:
    default = field.default if field.default is not MISSING else None
    if field.default_factory is not MISSING:
        default = field.default_factory()
    needed = field.default is MISSING and field.default_factory is MISSING
    if tyro.conf.Positional in marks:
        return Option(word if needed else f"[{word}]", about, positional=True)
    name = f"--{prefix}{field.name.replace('_', '-')}"
    after = ""
    if needed:
        after = "(required)"
    elif tyro.conf.UseAppendAction in marks:
        after = "(may be given several times)"
    elif kind is bool and default is True:
        word, after = "{true,false}", "(default: true)"
    elif not (default is None or default is False or default in ("", ())):
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        after = f"(default: {shown})"
    return Option(f"{name} {word}".rstrip(), f"{about} {after}".strip())


def _bare(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its annotations, and the marks among them."""
    if get_origin(kind) is Annotated:
        inner, *extras = get_args(kind)
        bare, marks = _bare(inner)
        return bare, (*marks, *extras)
    return kind, ()


def _word(kind: Any) -> str | None:
    """What stands for a value; None for what the command line does not offer."""
    kind, marks = _bare(kind)
    if TOKENS in marks:
        return str(TOKENS.metavar)
    if kind in _WORDS:
        return _WORDS[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "{" + ",".join(map(str, inner)) + "}"
    if origin in (Union, UnionType):
        words = [word for one in inner if one is not NoneType and (word := _word(one)) is not None]
        return "|".join(dict.fromkeys(words)) or None
    if origin is not tuple:
        return None
    return f"{_word(inner[0])} ..." if inner[1:] == (...,) else " ".join(str(_word(one)) for one in inner)


def _doc(shape: type[Any]) -> str:
    doc = inspect.getdoc(shape) or ""
    return "" if doc.startswith(f"{shape.__name__}(") else doc


def _prose(text: str, width: int) -> str:
    """Paragraphs wrapped; lines that begin with two spaces (commands) as they are."""
    out: list[str] = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        if any(line.startswith("  ") for line in lines):
            out.append(block)
        else:
            out.append("\n".join(_wrapped(" ".join(lines), width)))
    return "\n\n".join(out)


def columns(options: tuple[Option, ...], width: int) -> Iterator[str]:
    """Names on the left, sentences on the right."""
    column = min(max(len(option.names) for option in options), _LONGEST) + 2 + _GAP
    for option in options:
        lines = _wrapped(option.about, width - column)
        head = f"  {option.names}"
        if len(option.names) > _LONGEST or not lines:
            yield head
        else:
            yield head.ljust(column) + lines.pop(0)
        yield from (" " * column + line for line in lines)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
