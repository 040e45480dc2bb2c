"""What entries said before: `python -m studies.history` reads every version of an entry that git has.

Entries keep what they said since they have a place for it (`EvidenceEntry.earlier`); this fills in what came before.
Versions that say the same are one answer, and verdicts are today's rules on the numbers of then.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rolltree.compare.trace import LabError
from rolltree.recipe.recipe import Card
from rolltree.recipe.registry import list_recipes
from studies.command import run_study
from studies.lab.entry import EvidenceEntry, load_entries, load_entry, place, save_entry
from studies.lab.evidence import following
from studies.lab.places import EVIDENCE
from studies.lab.systems import SYSTEMS


@dataclass(frozen=True)
class HistorySettings:
    """Which entries are read and written."""

    folder: Path = EVIDENCE
    """Folder of stored evidence, inside a clone with its history."""


def main(settings: HistorySettings) -> int:
    """Write every entry with all that it said, and say how many answers there were."""
    cards, found = {c.name: c for c in [*list_recipes(), *(s.card for s in SYSTEMS.values())]}, 0
    for entry in load_entries(settings.folder):
        if entry.name in cards:
            filled = _filled(cards[entry.name], entry, settings.folder)
            found += len(filled.earlier)
            save_entry(filled, settings.folder)
    print(f"{found} earlier answers")
    return found


def _filled(card: Card, entry: EvidenceEntry, folder: Path) -> EvidenceEntry:
    last: EvidenceEntry | None = None
    for old in (*_versions(entry.name, folder), entry):
        last = following(card, replace(old, earlier=()), last)
    assert last is not None
    return replace(entry, earlier=last.earlier)


def _versions(name: str, folder: Path) -> Iterator[EvidenceEntry]:
    """Oldest first; what this version cannot read any more is left out."""
    # An entry of a paper lay among those of all recipes before.
    paths = dict.fromkeys((folder / f"{name}.json", place(name, folder)))
    told = [(path, commit) for path in paths
            for commit in _git(path.parent, "log", "--format=%H", "--reverse", "--", path.name).split()]  # fmt: skip
    with TemporaryDirectory() as scratch:
        for path, commit in told:
            try:
                text = _git(path.parent, "show", f"{commit}:./{path.name}")
            except LabError:
                continue  # it was removed there
            (Path(scratch) / f"{name}.json").write_text(text, encoding="utf-8")
            try:
                old = load_entry(name, Path(scratch))
            except LabError:
                continue
            if old is not None:
                yield old


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"git {words[0]} in {folder}: {done.stderr.strip() or 'failed'}; give a clone with its history")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(run_study("history", HistorySettings, main, __doc__))
