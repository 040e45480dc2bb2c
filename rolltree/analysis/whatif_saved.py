"""What-ifs beside a run: a folder each, with the grown tree as a forest and a file that says what was asked.

Nothing of the run itself is written to: its forests stay as training left them.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

from rolltree.analysis.source import RunSource, ViewError
from rolltree.analysis.text import Pieces
from rolltree.analysis.whatif import BranchCredit, before_after
from rolltree.analysis.whatif_given import credit_of
from rolltree.errors import RolltreeError
from rolltree.metrics.reward import wilson
from rolltree.tree import Tree
from rolltree.tree.forest import DROPPED
from rolltree.tree.store.atomic import new_file
from rolltree.tree.store.parquet import save
from rolltree.tree.store.values import read_json

FOLDER = "whatif"
ABOUT, GROWN = "about.json", "forest"
BETWEEN = f"/{FOLDER}/"
"""What stands between a run's name and a what-if's in the name of the grown forest as a source."""
State = Literal["growing", "done", "cancelled", "failed"]


@dataclass(frozen=True)
class SavedQuestion:
    """What was asked, with what, and how far it is."""

    step: int | None
    tree: str
    node: int
    kept: int
    """Tokens of the node that stayed."""
    n: int
    seed: int
    engine: str
    temperature: float
    said: str
    """Which weights continue, in a sentence."""
    credit: str
    """Name of the credit asked for; "" = the run's own."""
    model: str
    """Whose tokenizer shows it."""
    start: int
    """The node whose continuations were sampled."""
    known: int
    """Largest id of the nodes that stood before."""
    state: State = "growing"
    why: str = ""
    """What went wrong."""
    decoded: int = 0
    pid: int = 0
    host: str = ""

    def fresh(self, node: int) -> bool:
        """Whether a node was sampled by the what-if."""
        return node > self.known and node != self.start

    @property
    def now(self) -> State:
        """The state; what no living process grows any more has failed."""
        if self.state == "growing" and self.host == platform.node() and not _lives(self.pid):
            return "failed"
        return self.state

    @property
    def trouble(self) -> str:
        """What went wrong, in words."""
        return self.why or ("the program that grew it ended before it was done" if self.now == "failed" else "")


@dataclass(frozen=True)
class SavedWhatIf:
    """A what-if on disk."""

    name: str
    folder: Path
    about: SavedQuestion

    def source(self, run: RunSource) -> RunSource:
        """The grown tree as a source of its own, under the run's name."""
        return RunSource(f"{run.name}{BETWEEN}{self.name}", self.folder / GROWN, "forests", self.about.model)

    def tell(self, **changes: Any) -> SavedWhatIf:
        """Write down another state."""
        about = replace(self.about, **changes)
        with new_file(self.folder / ABOUT, overwrite=True) as sink:
            json.dump(asdict(about), sink, indent=1)
        return replace(self, about=about)

    def keep(self, tree: Tree) -> None:
        """Save the tree as it stands."""
        save([tree], self.folder / GROWN, overwrite=True, states="drop")


def beside(source: RunSource) -> Path:
    """Where the what-ifs of a source are kept: in its folder, or beside its file."""
    if source.kind == "nodes":
        return source.path.with_name(f"{source.path.name}.{FOLDER}")
    return source.inside(FOLDER)


def start_saving(source: RunSource, about: SavedQuestion, tree: Tree, name: str = "") -> SavedWhatIf:
    """Make the folder of a new what-if, under the next free number unless named."""
    here = about if about.pid else replace(about, pid=os.getpid(), host=platform.node())
    name = name or next_name(source)
    if not name.isalnum():
        raise ViewError(f"a what-if cannot be named {name!r}; give letters and digits only")
    folder = beside(source) / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ViewError(f"{folder} exists and is kept as it is; give the what-if another name") from None
    made = SavedWhatIf(name, folder, here)
    made.keep(tree)
    return made.tell()


def next_name(source: RunSource) -> str:
    """The next free number."""
    taken = [int(p.name) for p in beside(source).glob("*") if p.name.isdigit()] if beside(source).is_dir() else []
    return f"{max(taken, default=0) + 1:03d}"


def saved_whatifs(source: RunSource) -> list[SavedWhatIf]:
    """All what-ifs of a source, newest first; folders that are none are left out."""
    found = sorted(beside(source).glob(f"*/{ABOUT}"), reverse=True) if beside(source).is_dir() else []
    return [made for file in found if (made := _read(source, file.parent)) is not None]


def saved_whatif(source: RunSource, name: str) -> SavedWhatIf:
    """One what-if by its name."""
    folder = beside(source) / name
    made = _read(source, folder) if name.isalnum() and (folder / ABOUT).is_file() else None
    if made is None:
        known = ", ".join(s.name for s in saved_whatifs(source)) or "none yet"
        raise ViewError(f"{source.name} has no what-if {name!r}; it has {known}")
    return made


def grown_source(sources: Sequence[RunSource], name: str) -> RunSource | None:
    """The source behind a name of the form RUN/whatif/NAME; None where it is none."""
    run, between, mine = name.rpartition(BETWEEN)
    found = next((s for s in sources if s.name == run), None) if between else None
    return None if found is None else saved_whatif(found, mine).source(found)


def _read(source: RunSource, folder: Path) -> SavedWhatIf | None:
    if source.kind != "nodes":
        source.inside(FOLDER, folder.name, ABOUT)
    try:
        told: Any = read_json((folder / ABOUT).read_text(encoding="utf-8"))
        names = {f.name for f in fields(SavedQuestion)}
        return SavedWhatIf(
            folder.name, folder, SavedQuestion(**{k: v for k, v in cast("dict[str, Any]", told).items() if k in names})
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


# A what-if as a page or a terminal shows it: the branches at the place, their success, their credit old and new.

SHOWN = 60
"""Characters of a branch's text."""


@dataclass(frozen=True)
class WhatIfBranch:
    """A branch at the place."""

    name: str
    text: str
    branch: BranchCredit

    @property
    def success(self) -> str:
        """How many of the judged leaves below are right."""
        below = self.branch.below
        return f"{below.right} of {below.judged}" if below.judged else "–"


@dataclass(frozen=True)
class ShownWhatIf:
    """A what-if with words."""

    saved: SavedWhatIf
    credit: str
    branches: tuple[WhatIfBranch, ...]
    """The node at the place first; empty where no credit could be computed."""
    trouble: str
    """Why there is no credit."""
    old: tuple[int, int]
    """Right and judged leaves behind the place as it was."""
    new: tuple[int, int]
    """Right and judged ones among the new leaves."""

    @property
    def place(self) -> str:
        """Where the new continuations begin."""
        about = self.saved.about
        where = (
            f"token {about.kept} of node {about.node}" if about.start != about.node else f"the end of node {about.node}"
        )
        return f"{about.n} continuations of {about.tree} from {where}"

    @property
    def sentence(self) -> str:
        """What came of it."""
        return f"Behind this place {_share(*self.old)} before; of the new ones {_share(*self.new)}."


def shown_whatif(run: RunSource, saved: SavedWhatIf, pieces: Pieces, credit: str | None = None) -> ShownWhatIf:
    """A saved what-if under its own credit, or another one by name."""
    about = saved.about
    old = _undropped(run.archive(about.step).tree(about.tree))
    new = _undropped(saved.source(run).archive(None).tree(about.tree))
    name = about.credit if credit is None else credit
    trouble, branches = "", list[BranchCredit]()
    try:
        name, made = credit_of(run, name)
        branches = before_after(old, new, about.start, made)
    except RolltreeError as error:
        trouble = str(error)
    shown = [_shown(b, first=i == 0, pieces=pieces) for i, b in enumerate(branches)]
    return ShownWhatIf(saved, name, tuple(shown), trouble, *_counts(old, new, about.start))


def _undropped(tree: Tree) -> Tree:
    """The tree with the leaves that a filter of the run had dropped: a filter may keep the group that has grown."""
    for leaf in tree.leaves():
        if leaf.usage.startswith(DROPPED):
            leaf.usage = ""
    return tree


def _counts(old: Tree, new: Tree, start: int) -> tuple[tuple[int, int], tuple[int, int]]:
    from rolltree.tree.node import is_solved

    before, fresh = [0, 0], [0, 0]
    for leaf in new.leaves(start):
        if "reward" in leaf.scores:
            side = before if leaf.id in old.nodes else fresh
            side[0] += is_solved(leaf.scores)
            side[1] += 1
    return (before[0], before[1]), (fresh[0], fresh[1])


def _shown(branch: BranchCredit, *, first: bool, pieces: Pieces) -> WhatIfBranch:
    node = branch.node
    name = f"up to here (node {node.id})" if first else f"{'new ' if branch.fresh else ''}node {node.id}"
    text = pieces.text(node.actions[-SHOWN:] if first else node.actions[:SHOWN])
    return WhatIfBranch(name, text[-SHOWN:] if first else text[:SHOWN], branch)


def signed(value: float) -> str:
    """A credit in a table; a dash where none was given."""
    return "–" if math.isnan(value) else f"{value:+.3f}"


def _share(right: int, judged: int) -> str:
    if not judged:
        return "nothing was judged"
    rate = wilson(right / judged, judged)
    return f"{right} of {judged} right ({100 * rate.value:.0f} %, {100 * rate.low:.0f}–{100 * rate.high:.0f})"
