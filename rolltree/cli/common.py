"""What the verbs share: parsing with tyro, a console, JSON for machines."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import tyro
from rich.console import Console
from rich.table import Table

from rolltree.cli.helptext import help_of, switched
from rolltree.console import Terminal
from rolltree.errors import RolltreeError, did_you_mean
from rolltree.knobs.amounts import Tokens
from rolltree.knobs.values import check_instance
from rolltree.knobs.varying import schedule
from rolltree.visible import visible

if TYPE_CHECKING:
    from rolltree.engine.protocol import Sampling
    from rolltree.recipe.acted import Acted


T = TypeVar("T")

PLAIN = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands)
"""Knobs of nested dataclasses keep their bare names: `--lr`, not `--config.optim.lr`."""


def parse(
    shape: type[T] | Any, arguments: Sequence[str], verb: str, about: str, *, prefixes: bool = False,
    program: str = "rolltree",
) -> T:  # fmt: skip
    """Arguments of a verb as an instance of its dataclass; unknown ones are refused with the nearest known.

    With `prefixes` only what the shape itself marks keeps bare names. Asked for help, it prints that and exits.
    """
    if {"-h", "--help"} & set(arguments):
        print(help_of(shape, f"{program} {verb}", about, prefixes=prefixes))
        raise SystemExit(0)
    config = PLAIN[1:] if prefixes else PLAIN
    given = _switches(arguments, switched(shape, prefixes=prefixes))
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            asked = tyro.cli(shape, args=given, prog=f"{program} {verb}", config=config)
    finally:
        sys.stderr.write(visible(said.getvalue()))  # what was given is repeated there
    check_instance("", asked, lambda name: f"--{name.replace('_', '-')}")
    return asked


def _switches(arguments: Sequence[str], on: Sequence[str]) -> list[str]:
    """Switches that are on by default take true or false: `--log-entropy false`."""
    out: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name.replace("_", "-") not in on:
            out.append(word)
            continue
        value = value if equals else next(words, "")
        if value.lower() not in ("true", "false"):
            raise RolltreeError(f"{name} {value!r} makes no sense; give true or false")
        if value.lower() == "false":
            owner, dot, knob = name.removeprefix("--").rpartition(".")
            out.append(f"--{owner}{dot}no-{knob}")
    return out


def emit(data: Any) -> None:
    """One JSON document on stdout."""
    json.dump(data, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


def console() -> Console:
    """Where people read; wide enough to keep tables whole when piped."""
    return Terminal() if sys.stdout.isatty() else Terminal(width=140)


def say_acted(out: Console, acted: Acted | None) -> None:
    """Whether the mechanism acted: in colour where it never did."""
    if acted is not None:
        out.print(str(acted), style="" if acted.acted else "yellow", highlight=False, markup=False)


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


def at_most(most: int, **counts: int) -> None:
    """Refuse a count that no memory holds, by the name of its option."""
    for name, count in counts.items():
        if count > most:
            raise RolltreeError(f"--{name.replace('_', '-')} {count} fits no memory; give at most {most}")


def kept(source: Path, out: Path | None) -> None:
    """Refuse to write over the very file that is read, whatever may be overwritten."""
    if out is not None and out.resolve() == source.resolve():
        raise RolltreeError(f"--out {out} is the file that is read, and would be lost; give another name")


def varying(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments without the options whose value is a schedule (see `rolltree.knobs.varying`), and those by knob."""
    rest, texts = list[str](), dict[str, str]()
    todo = list(arguments)
    while todo:
        option, equals, value = todo[0].partition("=")
        text = value if equals else todo[1] if len(todo) > 1 else ""
        if option.startswith("--") and schedule(text) is not None:
            texts[option[2:].replace("-", "_")] = text
            todo = todo[1 if equals else 2 :]
        else:
            rest.append(todo.pop(0))
    return rest, texts


def take(texts: dict[str, str], knobs: T) -> T:
    """A dataclass of knobs with those of its own that vary; they leave the texts."""
    own = {f.name: texts.pop(f.name) for f in fields(cast(Any, knobs)) if f.name in texts}
    return replace(cast(Any, knobs), **own) if own else knobs


def refuse_rest(texts: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse options that vary and belong to nothing that may."""
    for name, text in texts.items():
        way = did_you_mean(name, known) or f"{', '.join(known)} may"
        raise RolltreeError(f"no knob {name!r} may vary over a run as in {text!r}; {way}")


def first_name(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """A leading positional name and the rest; None when the first argument is an option."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], list(arguments[1:])
    return None, list(arguments)


def leading_names(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """All positional names before the first option, and the rest."""
    count = next((i for i, a in enumerate(arguments) if a.startswith("-")), len(arguments))
    return list(arguments[:count]), list(arguments[count:])


# The options of the verbs that sample with a policy as it stands: how tokens are drawn, and how many.


@dataclass(frozen=True)
class SamplingArguments:
    """How rollouts are sampled."""

    temperature: float = 1.0
    """Of sampling; 0 is greedy."""
    top_p: float = 1.0
    """Sample from the most likely tokens that have this share of the probability; 1 = from all."""
    max_tokens: Tokens | None = None

    def check(self) -> None:
        """Refuse what could not be sampled."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise RolltreeError(
                f"--temperature {self.temperature} samples nothing; give a number of 0 (greedy) or more"
            )
        if not 0 < self.top_p <= 1:
            raise RolltreeError(f"--top-p {self.top_p} makes no sense; give a number above 0 and at most 1 (no limit)")
        if self.max_tokens is not None:
            at_least(1, max_tokens=self.max_tokens)

    def drawn(self) -> Sampling:
        """The defaults of every request."""
        from rolltree.engine.protocol import Sampling

        return Sampling(temperature=self.temperature, top_p=self.top_p)
