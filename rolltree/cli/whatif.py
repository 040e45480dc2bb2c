"""`rolltree whatif`: sample further continuations from a place in a saved tree, and see what becomes of the credit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rolltree.analysis.decisive import newest_step
from rolltree.analysis.source import RunSource, open_source
from rolltree.analysis.text import pieces_of
from rolltree.analysis.whatif_saved import (
    SavedWhatIf,
    ShownWhatIf,
    beside,
    saved_whatif,
    saved_whatifs,
    shown_whatif,
    signed,
)
from rolltree.cli.common import at_least, at_most, console, emit, first_name, grid, parse
from rolltree.errors import RolltreeError
from rolltree.policy.hub import trust_code
from rolltree.recipe.stored import Given
from rolltree.tree.store.atomic import check_writable
from rolltree.visible import visible

ABOUT = """What if a rollout had gone on otherwise: sample continuations from a place
in a saved tree, with the weights that wrote it, and see what they are worth and
what becomes of the credit of the branches beside them.

  rolltree whatif runs/first                          list those that were saved
  rolltree whatif runs/first --node 7                   all of node 7 anew
  rolltree whatif runs/first --node 7 --token 3 --n 16  from its fourth token on
  rolltree whatif runs/first --node 7 --credit grpo     under another credit
  rolltree whatif runs/first --node 7 --policy 20       by step 20's checkpoint
  rolltree whatif runs/first --show 001                 one that was saved
  rolltree whatif runs/mine --node 7 --recipe mine.py:R  parts of your own

The grown tree is saved in RUN/whatif; the run itself is never changed.
Interactive tasks go on from the state of their environment, which is replayed
and checked where it was not kept.
"""


@dataclass(frozen=True)
class WhatIfArguments:
    """From where, and how."""

    run: Path | None = None
    """A run folder, a folder of saved forests, or a file of nodes."""
    step: int | None = None
    """The saved step; the newest when left out."""
    tree: str = ""
    """The tree; it must be named where the step has several."""
    node: int | None = None
    """The node to sample anew; behind it where the policy did not write it."""
    token: int | None = None
    """The token of the node, counted from 0, from which on is sampled; the first when left out."""
    n: int = 8
    """How many continuations."""
    seed: int = 0
    """Where chance starts; another one gives other continuations."""
    credit: str = ""
    """A credit by name, or one of your own as FILE.py:NAME; the run's own when left out."""
    recipe: str = ""
    """The run's recipe, where that is one of your own: FILE.py:NAME. Stored files name registered parts only."""
    policy: str = ""
    """A training step whose checkpoint continues (0 = the model before the first), or a model; the weights that wrote
    the place when left out, or the nearest that were kept."""
    engine: str = "local"
    """What samples: local, vllm, or a server's address such as http://127.0.0.1:8000."""
    device: str = "auto"
    """Where a local engine computes: auto (a GPU where there is one), cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """In which type: auto (bfloat16 on a GPU, float32 on a processor), float32 or bfloat16."""
    temperature: float | None = None
    """Of sampling; the run's own when left out."""
    task: str = ""
    """The task of rollouts that no run folder names, or that is code of your own, such as FILE.py:NAME."""
    level: int | None = None
    """Its difficulty."""
    items_seed: int = 0
    """The seed that their items were drawn with (of rolltree rollout: its --seed)."""
    model: str = ""
    """Model whose tokenizer shows the text; that of the weights when left out."""
    trust_remote_code: bool = False
    """Run the Python code that the model's folder brings, if it brings any; read it before."""
    name: str = ""
    """Name of the folder it is saved in; the next number when left out."""
    show: str = ""
    """Show a saved one by its name, and sample nothing."""
    json: bool = False
    """Print one JSON document and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """List, show, or grow."""
    name, rest = first_name(arguments)
    asked = parse(WhatIfArguments, ["--run", name, *rest] if name else rest, "whatif", ABOUT)
    if asked.run is None:
        raise RolltreeError("which rollouts? rolltree whatif RUN; give a run folder or a file of nodes")
    given = Given(asked.task, asked.recipe, (asked.credit,) if asked.credit else (), asked.trust_remote_code)
    source = open_source(asked.run, asked.model, given)
    if asked.show:
        return _shown(source, saved_whatif(source, asked.show), asked)
    if asked.node is None:
        return _list(source, asked)
    at_least(1, n=asked.n)
    at_most(10_000, n=asked.n)
    if asked.temperature is not None and not (math.isfinite(asked.temperature) and asked.temperature >= 0):
        raise RolltreeError(f"--temperature {asked.temperature} samples nothing; give a number of 0 (greedy) or more")
    if asked.trust_remote_code:
        trust_code()
    return _shown(source, _grow(source, asked, asked.node), asked)


def _grow(source: RunSource, asked: WhatIfArguments, node: int) -> SavedWhatIf:
    from rolltree.analysis.whatif_grow import WhatIfQuestion, grow_whatif  # loads torch, which --help does not need

    check_writable(beside(source), "the folder of what-ifs", folder=True)
    step = newest_step(source) if asked.step is None else asked.step
    tree = asked.tree or _only_tree(source, step)
    return asyncio.run(grow_whatif(source, WhatIfQuestion(
        step, tree, node, asked.token, asked.n, asked.seed, asked.policy, asked.engine, asked.device, asked.dtype,
        asked.temperature, asked.level, asked.items_seed, asked.credit, asked.name,
    )))  # fmt: skip


def _only_tree(source: RunSource, step: int | None) -> str:
    ids = list(source.archive(step).ids)
    if len(ids) == 1:
        return ids[0]
    few = ", ".join(ids[:6]) + (" …" if len(ids) > 6 else "")
    where = "the forest" if step is None else f"step {step}"
    raise RolltreeError(f"{where} has {len(ids)} trees; name one with --tree: {few}")


def _list(source: RunSource, asked: WhatIfArguments) -> int:
    found = saved_whatifs(source)
    if asked.json:
        emit([{"name": s.name, "folder": str(s.folder), **vars(s.about), "state": s.about.now} for s in found])
        return 0
    out = console()
    if not found:
        out.print(Text(f"{source.name} has no what-ifs yet; rolltree whatif {asked.run} --node ID grows one"))
        return 0
    rows = [
        {"name": s.name, "state": s.about.now, "step": "" if s.about.step is None else s.about.step,
         "tree": s.about.tree, "node": s.about.node, "token": s.about.kept, "n": s.about.n} for s in found
    ]  # fmt: skip
    out.print(grid(f"What-ifs of {source.name}", rows))
    return 0


def _shown(source: RunSource, saved: SavedWhatIf, asked: WhatIfArguments) -> int:
    pieces = pieces_of(saved.source(source))
    made = shown_whatif(source, saved, pieces, asked.credit or None)
    if asked.json:
        emit(_document(made))
        return 0
    out = console()
    if pieces.note:
        out.print(Text(visible(pieces.note), style="dim"))
    about = saved.about
    step = "" if about.step is None else f", step {about.step}"
    out.print(Text(visible(f"{made.place}{step}; {about.said}")))
    out.print(Text(made.sentence, style="bold"))
    if about.trouble:
        out.print(Text(visible(about.trouble), style="red"))
    out.print()
    if made.trouble:
        out.print(Text(visible(made.trouble)))
    else:
        rows = [
            {"branch": b.name, "text": b.text.replace("\n", "⏎")[:32], "right": b.success,
             "credit": signed(b.branch.before), "now": signed(b.branch.after)} for b in made.branches
        ]  # fmt: skip
        out.print(grid(f"Under {made.credit}, on this tree alone: mean advantage of each branch's tokens", rows))
    out.print(Text(f"\nsaved as {saved.folder}", style="dim"))
    return 0


def _document(made: ShownWhatIf) -> dict[str, object]:
    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    about = made.saved.about
    return {
        "name": made.saved.name, "folder": str(made.saved.folder), **vars(about), "state": about.now,
        "right_before": made.old[0], "judged_before": made.old[1], "right_new": made.new[0], "judged_new": made.new[1],
        "under": made.credit, "no_credit": made.trouble,
        "branches": [
            {"node": b.branch.node.id, "new": b.branch.fresh, "text": b.text, "leaves": b.branch.below.leaves,
             "judged": b.branch.below.judged, "right": b.branch.below.right, "reward": number(b.branch.below.reward),
             "credit_before": number(b.branch.before), "credit_now": number(b.branch.after)} for b in made.branches
        ],
    }  # fmt: skip
