"""`rolltree decisive`: the tokens that decided, ranked by the change in success they made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rolltree.analysis.decisive import PRIOR, ShownDecisions, ShownFork, interval, newest_step, percent, shown_decisions
from rolltree.analysis.source import open_source
from rolltree.analysis.text import pieces_of
from rolltree.cli.common import at_least, console, emit, first_name, grid, parse
from rolltree.errors import RolltreeError
from rolltree.visible import visible

ABOUT = """Rank the forks of a run's rollouts by the change in success they made: "this token took 80 % to 10 %".

  rolltree decisive runs/first                    the newest saved step
  rolltree decisive runs/first --step 20 --top 5
  rolltree decisive nodes.jsonl --model nano      rollouts of any program
  rolltree decisive runs/first --prior 0          by the plain change

Rollouts are merged by prefix, so groups of independent samples fork where their answers begin to differ. Intervals
count independent continuations, not leaves.
"""


@dataclass(frozen=True)
class DecisiveArguments:
    """What to look at."""

    run: Path | None = None
    """A run folder, a folder of saved forests, or a file of nodes."""
    step: int | None = None
    """The saved step; the newest when left out."""
    tree: str = ""
    """Only this tree."""
    top: int = 10
    """How many forks to print."""
    prior: float = PRIOR
    """Observations at the fork's own rate that each side is given for the ranking; 0 ranks by the plain change."""
    least: float = 2.0
    """Independent continuations below which a branch is not judged."""
    model: str = ""
    """Model whose tokenizer shows the text; the run's own when left out."""
    json: bool = False
    """Print one JSON document and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Parse, rank, print."""
    name, rest = first_name(arguments)
    asked = parse(DecisiveArguments, ["--run", name, *rest] if name else rest, "decisive", ABOUT)
    if asked.run is None:
        raise RolltreeError("which rollouts? rolltree decisive RUN; give a run folder or a file of nodes")
    at_least(1, top=asked.top)
    source = open_source(asked.run, asked.model)
    step = newest_step(source) if asked.step is None else asked.step
    pieces = pieces_of(source)
    found = shown_decisions(source, step, pieces, tree=asked.tree, most=asked.top, prior=asked.prior, least=asked.least)
    if asked.json:
        emit(_document(found))
    else:
        _show(found, pieces.note)
    return 0


def _document(found: ShownDecisions) -> dict[str, object]:
    def fork(f: ShownFork) -> dict[str, object]:
        return {
            "tree": f.fork.tree, "position": f.fork.position, "before": f.fork.before, "leaves": f.fork.leaves,
            "context": f.context, "others": f.fork.others,
            "branches": [
                {"node": b.branch.node, "at": b.branch.at, "token": b.token, "tokens": b.branch.actions.tolist(),
                 "role": b.branch.role, "forced": b.branch.forced, "share": b.branch.share, "leaves": b.branch.leaves,
                 "continuations": b.branch.continuations, "after": b.branch.after, "change": b.branch.change,
                 "low": b.branch.low, "high": b.branch.high, "ranked_by": b.branch.shrunk} for b in f.branches
            ],
        }  # fmt: skip

    return {"step": found.step, "forks": found.total, "branches": found.branches, "clear": found.clear,
            "ranked": [fork(f) for f in found.forks]}  # fmt: skip


def _show(found: ShownDecisions, note: str) -> None:
    out = console()
    if note:
        out.print(Text(visible(note), style="dim"))
    out.print(Text(found.sentence), highlight=False)
    for number, each in enumerate(found.forks, 1):
        out.print()
        fork = each.fork
        where = f"{fork.tree}, node {fork.decisive.node}, {fork.leaves} rollouts"
        out.print(Text.assemble(f"{number}. ", (visible(each.sentence), "bold"), f"   {visible(where)}"))
        out.print(Text(f"   after …{_line(each.context)}", style="dim"))
        rows = [
            {"branch": _line(b.token + b.rest)[:40], "success": percent(b.branch.after), "rollouts": b.branch.leaves,
             "independent": round(b.branch.continuations, 1), "change, points (95 %)": interval(b.branch)}
            for b in each.branches
        ]  # fmt: skip
        out.print(grid("", rows))


def _line(text: str) -> str:
    return text.replace("\n", "⏎")
