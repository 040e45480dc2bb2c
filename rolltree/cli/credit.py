"""`rolltree credit`: advantages for a forest written by any program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.text import Text

from rolltree.analysis.decisive import newest_step
from rolltree.analysis.lens import Averaging, Lens, flipped_nodes, open_lens, pairs
from rolltree.analysis.source import open_source
from rolltree.analysis.text import Pieces, pieces_of
from rolltree.cli.common import at_least, console, emit, first_name, grid, kept, leading_names, parse
from rolltree.credit.fold import fold, leaf_weights, write
from rolltree.credit.needs import check_needs
from rolltree.credit.registry import CREDITS, credits, load_credit
from rolltree.errors import RolltreeError
from rolltree.recipe.stored import Given
from rolltree.tree.store.atomic import check_writable
from rolltree.tree.store.jsonl import credit_lines, read, write_credit
from rolltree.tree.table import table
from rolltree.visible import visible

# `rolltree credit NAME NAME … FILE`: several credits on the same rollouts, and the tokens whose sign flips.


@dataclass(frozen=True)
class LensArguments:
    """What to compare the credits on."""

    rollouts: Path
    """A run folder, a folder of saved forests, or a file of nodes."""
    step: int | None = None
    """The saved step; the newest when left out."""
    tree: str = ""
    """Only this tree."""
    top: int = 12
    """How many nodes with flipped tokens to print."""
    averaging: Literal["token", "sequence", "group", "fixed"] = "sequence"
    """What every leaf's weight is shared over: all tokens, its own length, its group's tokens, a fixed length."""
    fixed_length: int | None = None
    """The length of --averaging fixed."""
    multiplicity: Literal["per_leaf", "once", "sqrt"] = "per_leaf"
    """How often a shared action counts: once per leaf below it, once, or by the root of their number."""
    model: str = ""
    """Model whose tokenizer shows the text; the run's own when left out."""
    json: bool = False
    """Print one JSON document and nothing else."""


def compare(names: Sequence[str], place: str, rest: Sequence[str], about: str) -> int:
    """Compute the credits, say how alike they are, list where they disagree."""
    asked = parse(LensArguments, ["--rollouts", place, *rest], "credit", about)
    at_least(1, top=asked.top)
    source = open_source(asked.rollouts, asked.model, Given(credits=tuple(names)))
    step = newest_step(source) if asked.step is None else asked.step
    how = Averaging(asked.averaging, asked.fixed_length, asked.multiplicity)
    made, pieces = open_lens(source, step, tuple(dict.fromkeys(names)), tree=asked.tree, how=how), pieces_of(source)
    if asked.json:
        emit(_document(made, pieces, asked.top))
    else:
        _show(made, pieces, asked.top)
    return 0


def _document(made: Lens, pieces: Pieces, top: int) -> dict[str, object]:
    return {
        "credits": list(made.names), "taught": int(made.taught.sum()), "flipped": int(made.flips.sum()),
        "pairs": [{"credits": [p.one, p.other], "correlation": p.alike, "flipped": p.flipped} for p in pairs(made)],
        "nodes": [
            {"tree": n.tree, "node": n.node, "text": n.text, "flipped": n.flipped,
             "advantage": dict(zip(made.names, n.advantage, strict=True))} for n in flipped_nodes(made, pieces, top)
        ],
    }  # fmt: skip


def _show(made: Lens, pieces: Pieces, top: int) -> None:
    out = console()
    many, taught = int(made.flips.sum()), int(made.taught.sum())
    out.print(f"{many:,} of {taught:,} taught tokens change sign between {', '.join(made.names)}", highlight=False)
    if pieces.note:
        out.print(Text(visible(pieces.note), style="dim"))
    out.print(grid("", [
        {"credits": f"{p.one}, {p.other}", "correlation": f"{p.alike:.2f}", "sign flips": p.flipped,
         "share": f"{100 * p.share:.0f} %"} for p in pairs(made)
    ]))  # fmt: skip
    nodes = flipped_nodes(made, pieces, top)
    if nodes:
        out.print()
        out.print(grid("Nodes with flipped tokens, the widest apart first; mean advantage of those tokens", [
            {"tree": n.tree, "node": n.node, "⇅": n.flipped, "text": n.text.replace("\n", "⏎")}
            | {name: f"{a:+.2f}" for name, a in zip(made.names, n.advantage, strict=True)} for n in nodes
        ]))  # fmt: skip


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
        from rolltree.cli.credit import compare  # the viewer's modules, which one credit does not need

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
