"""A stored piece of evidence: one JSON file a recipe, readable by people and by the generators of tables and pages.

It lies in `evidence/`, or with its paper (`studies.lab.places`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from rolltree.compare.stats import Interval, Outcome
from rolltree.compare.trace import LabError, write_json
from rolltree.compare.void import SeedResult
from rolltree.recipe.recipe import Evidence
from rolltree.tree.store.values import read_json
from studies.lab.places import EVIDENCE, all_in_folders, in_folder

FORMAT = 1


@dataclass(frozen=True)
class Confirmation:
    """The same question again, on seeds that nothing else used: what a verdict of *holds* waits for."""

    results: tuple[SeedResult, ...]
    effect: Interval
    outcome: Outcome
    words: str
    seconds: float


@dataclass(frozen=True)
class EarlierAnswer:
    """What an entry said before it was asked something else, or made again with other code."""

    question: Mapping[str, Any]
    seeds: int
    effect: Interval
    outcome: Outcome


@dataclass(frozen=True)
class EvidenceEntry:
    """What was claimed, what was found, and what it was found with."""

    name: str
    title: str
    paper: str
    claim: str
    kind: str
    """exact, simulated or training."""
    question: Mapping[str, Any]
    """The card's `Evidence`, field by field."""
    results: tuple[SeedResult, ...]
    effect: Interval
    """Recipe minus baseline."""
    outcome: Outcome
    words: str
    sources: Mapping[str, str]
    """Hash of each definition the claim rests on, by its name."""
    versions: Mapping[str, str]
    command: str
    seconds: float
    format: int = FORMAT
    confirmation: Confirmation | None = None
    earlier: tuple[EarlierAnswer, ...] = ()
    """Everything it said before, oldest first: what was tried and dropped counts."""


def question_of(entry: EvidenceEntry) -> Evidence:
    """The question that an entry was made for."""
    told: dict[str, Any] = {**entry.question, "settings": tuple(entry.question["settings"])}
    return Evidence(**told)


def save_entry(entry: EvidenceEntry, folder: Path) -> Path:
    """Write it to its place."""
    path = place(entry.name, folder)
    write_json(path, asdict(entry))
    return path


def place(name: str, folder: Path) -> Path:
    """Where an entry lies: `folder/NAME.json`, or with its paper where the folder is the checkout's own."""
    own = in_folder(name, "evidence.json") if folder.resolve() == EVIDENCE else None
    return own or folder / f"{name}.json"


def load_entry(name: str, folder: Path) -> EvidenceEntry | None:
    """The stored entry of a recipe; None when there is none, an error naming the reason when it cannot be read."""
    return _loaded(name, place(name, folder))


def _loaded(name: str, path: Path) -> EvidenceEntry | None:
    if not path.is_file():
        return None
    try:
        raw = cast("dict[str, Any]", read_json(path.read_text(encoding="utf-8")))
        raw["format"] = _known_format(raw["format"])
        results = tuple(_result(r) for r in raw.pop("results"))
        effect = Interval(**raw.pop("effect"))
        again = _confirmation(raw.pop("confirmation", None))
        earlier = tuple(_earlier(r) for r in raw.pop("earlier", ()))
        made = EvidenceEntry(results=results, effect=effect, confirmation=again, earlier=earlier, **raw)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"cannot read {path}: {error}; run `rolltree evidence {name}` again") from error
    if made.name != name:
        raise LabError(f"{path} is an entry of {made.name!r:.80}; name the file after it, or remove it")
    return made


def load_entries(folder: Path) -> list[EvidenceEntry]:
    """All stored entries by name; of the checkout's folder those of papers too."""
    places = {path.stem: path for path in folder.glob("*.json")}
    if folder.resolve() == EVIDENCE:
        places |= all_in_folders("evidence.json")
    found = (_loaded(name, path) for name, path in sorted(places.items()))
    return [entry for entry in found if entry is not None]


def _known_format(found: Any) -> int:
    if found != FORMAT:
        raise ValueError(f"it has format {found}, and this version reads {FORMAT}")
    return FORMAT


def _confirmation(raw: dict[str, Any] | None) -> Confirmation | None:
    if raw is None:
        return None
    results = tuple(_result(r) for r in raw["results"])
    return Confirmation(results, Interval(**raw["effect"]), raw["outcome"], str(raw["words"]), float(raw["seconds"]))


def _earlier(raw: dict[str, Any]) -> EarlierAnswer:
    return EarlierAnswer(dict(raw["question"]), int(raw["seeds"]), Interval(**raw["effect"]), raw["outcome"])


def _result(raw: dict[str, Any]) -> SeedResult:
    curves = {str(k): (list(map(float, x)), list(map(float, y))) for k, (x, y) in raw["curves"].items()}
    also = {str(k): (float(a), float(b)) for k, (a, b) in raw.get("also", {}).items()}
    learned = {str(k): (float(a), float(b)) for k, (a, b) in raw.get("learned", {}).items()}
    return SeedResult(int(raw["seed"]), float(raw["value"]), float(raw["baseline"]), curves, also, learned)
