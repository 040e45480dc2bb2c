"""`rolltree credit NAME NAME … FILE`: several credits on the same rollouts, and the tokens whose sign flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.text import Text

from rolltree.analysis.lens import Averaging, Lens
from rolltree.cli.common import at_least, console, emit, grid, parse
from rolltree.recipe.stored import Given
from rolltree.view.decisive import newest_step
from rolltree.view.lens import flipped_nodes, open_lens, pairs
from rolltree.view.source import open_source
from rolltree.view.text import Pieces, pieces_of
from rolltree.visible import visible


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
