"""`rolltree credit`: advantages for a forest written by any program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rolltree.cli.common import console, emit, first_name, grid, kept, leading_names, parse
from rolltree.credit.fold import fold, leaf_weights, write
from rolltree.credit.needs import check_needs
from rolltree.credit.registry import CREDITS, credits, load_credit
from rolltree.errors import RolltreeError
from rolltree.tree.atomic import check_writable
from rolltree.tree.jsonl import credit_lines, read, write_credit
from rolltree.tree.table import table

ABOUT = """Compute advantages for a forest in the interchange format (one node per JSON line).

  rolltree credit                              list the credits
  rolltree credit grpo nodes.jsonl             print one line per trained node
  rolltree credit gigpo nodes.jsonl --out adv.jsonl
  rolltree credit mine.py:MyCredit nodes.jsonl
  rolltree credit grpo sibling runs/first      side by side, with flipped signs

Each line is {"tree", "id", "gain", "loss"}. rolltree credit NAME --help shows the knobs of one.
"""


@dataclass(frozen=True)
class Listing:
    """How to list."""

    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class CreditArguments:
    """What to compute on, and how leaves are averaged."""

    nodes: Annotated[Path, tyro.conf.Positional]
    """The forest: one node per JSON line."""
    out: Path | None = None
    """Where to write; standard output when left out."""
    overwrite: bool = False
    """Replace an existing output file."""
    averaging: Literal["token", "sequence", "group", "fixed"] = "sequence"
    """What every leaf's weight is shared over: all tokens, its own length, its group's tokens, a fixed length."""
    fixed_length: int | None = None
    """The length of --averaging fixed."""
    multiplicity: Literal["per_leaf", "once", "sqrt"] = "per_leaf"
    """How often a shared action counts: once per leaf below it, once, or by the root of their number."""


def run(arguments: Sequence[str]) -> int:
    """List, or compute."""
    name, rest = first_name(arguments)
    if name is None:
        return _list(rest)
    words, options = leading_names(arguments)
    if len(words) > 2:
        from rolltree.cli.credit_lens import compare  # the viewer's modules, which one credit does not need

        return compare(words[:-1], words[-1], options, ABOUT)
    made = CREDITS.find(name).make
    shape = make_dataclass(
        "CreditArguments",
        [
            ("arguments", CreditArguments, field(metadata={"heading": "What to compute on"})),
            ("knobs", made, field(default_factory=made, metadata={"heading": f"Knobs of {name}"})),
        ],
        frozen=True,
    )
    asked: Any = parse(shape, rest, f"credit {name}", ABOUT)
    return _compute(name, asked.arguments, asked.knobs)


def _list(arguments: Sequence[str]) -> int:
    asked = parse(Listing, arguments, "credit", ABOUT)
    rows = [
        {"credit": entry.name, "family": entry.family, "needs": ", ".join(sorted(load_credit(entry.name).needs)),
         "paper": entry.paper}
        for entry in credits().values()
    ]  # fmt: skip
    if asked.json:
        emit(rows)
    else:
        out = console()
        out.print(grid("Credits", rows))
        out.print("\nrolltree credit NAME --help shows the knobs of one.", style="dim")
    return 0


def _compute(name: str, asked: CreditArguments, credit: Any) -> int:
    kept(asked.nodes, asked.out)
    if asked.out is not None:
        check_writable(asked.out)
    forest = read(asked.nodes)
    if not len(forest):
        raise RolltreeError(f"{asked.nodes} holds no trees; give a file with nodes")
    view = table(forest)
    check_needs(view, credit)
    advantage = credit(view)
    weights = leaf_weights(view, asked.averaging, counted=advantage.counted, fixed_length=asked.fixed_length)
    write(view, fold(view, advantage, weights, asked.multiplicity))
    if asked.out is None:
        sys.stdout.writelines(line + "\n" for line in credit_lines(forest))
        return 0
    written = write_credit(forest, asked.out, overwrite=asked.overwrite)
    taught = int((view.live if advantage.counted is None else view.live & advantage.counted).sum())
    console().print(
        f"{name}: {len(view.trees)} trees, {len(view.leaf)} leaves, {taught} of them teach; wrote {written}"
    )
    return 0
